#!/usr/bin/env bash
# What the assertions of a release binary cost: instructions of one host in user space that are spent on the lines of an assertion or
# in what these lines call, of all instructions, for puts, znodes that are set, and transactions. Counted by valgrind, so the load of
# the machine does not matter; the kernel's part of the work is left out, which makes the shares larger than they are in processor time.
# Usage: bench/assertions.sh [SECONDS]
# ORDINATE_BINARY: the server, with line tables (target/release/ordinate).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-6}
ordinate=$(realpath "${ORDINATE_BINARY:-${CARGO_TARGET_DIR:-target}/release/ordinate}")
folder=$(mktemp -d --tmpdir=/var/tmp)
port=${BENCH_PORT:-24600}
pid=
trap 'kill $pid 2> /dev/null || true; rm -rf "$folder"' EXIT
cat > "$folder/cluster.toml" << FILE
cluster = "assertions"
[coordination]
engine = "mason"
shards = 1
[txn]
shards = 1
[clock]
source = "fixed"
epsilon = "100us"
[hosts]
a = "127.0.0.1:$port"
FILE
valgrind --tool=callgrind --instr-atstart=no --dump-line=yes --callgrind-out-file="$folder/counts" "$ordinate" serve \
  --config "$folder/cluster.toml" --host a --set listen.native=127.0.0.1:$((port + 1)) \
  --set listen.admin=127.0.0.1:$((port + 2)) --set listen.zookeeper=127.0.0.1:$((port + 3)) > "$folder/host.log" 2>&1 &
pid=$!
for _ in $(seq 100); do
  "$ordinate" zk --servers 127.0.0.1:$((port + 3)) ls / > /dev/null 2>&1 && break
  sleep 0.5
done
load=(--connections 4 --outstanding 16 --keys 500 --seconds "$seconds" --endpoints 127.0.0.1:$((port + 1)))
callgrind_control -i on "$pid" > /dev/null 2>&1
"$ordinate" bench kv "${load[@]}" > /dev/null
callgrind_control -d kv "$pid" > /dev/null 2>&1
"$ordinate" bench zk --sessions 4 --outstanding 16 --nodes 200 --seconds "$seconds" --endpoints 127.0.0.1:$((port + 3)) > /dev/null
callgrind_control -d zk "$pid" > /dev/null 2>&1
"$ordinate" bench txn --workload put "${load[@]}" > /dev/null
callgrind_control -d txn "$pid" > /dev/null 2>&1
python3 bench/lib/assertions.py puts="$folder/counts.1" sets="$folder/counts.2" transactions="$folder/counts.3"
