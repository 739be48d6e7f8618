#!/usr/bin/env bash
# What a host of the partially ordered log takes to serve again after `kill -9`, and what it writes meanwhile: one host, one partition,
# nodes of 1 KiB in calls of 32, of 96 colours.
# Usage: bench/fuzzylog-restart.sh [MIB...]   (256 1024: what is retained at each restart)
# ORDINATE_BINARY: the server (target/release/ordinate). BENCH_FOLDER: where the data is (/var/tmp).
set -euo pipefail
cd "$(dirname "$0")/.."
source bench/lib/servers.sh
sizes=("$@")
[ $# -gt 0 ] || sizes=(256 1024)
native=127.0.0.1:$((port + 21)) admin=127.0.0.1:$((port + 31))
cat > "$folder/cluster.toml" <<EOF
cluster = "bench"
data = "$folder/data"
[hosts]
h1 = "127.0.0.1:$((port + 11))"
[listen]
native = "$native"
admin = "$admin"
[fuzzylog]
partitions = 1
replicas = 1
replicas_min = 1
partition_bytes = "4GiB"
EOF

# Bytes of the nodes that are retained; -1 while the partition is not served.
retained() {
  curl -s "http://$admin/v1/status" | python3 -c 'import json, sys
partition = json.load(sys.stdin)["fuzzylog"]["partitions"]["0"]
print(partition["bytes"] if partition["serves"] is not None else -1)' 2>/dev/null || echo -1
}
start() {
  "$ordinate" serve --config "$folder/cluster.toml" --host h1 >> "$folder/host.log" 2>&1 &
  pids=($!)
}
# BYTES: waits until so many are served, two minutes at most.
await() {
  for _ in $(seq 2400); do
    [ "$(retained)" -ge "$1" ] && return
    sleep 0.05
  done
  echo "the host does not serve $1 bytes within two minutes" >&2
  exit 1
}

start
await 0
for mib in "${sizes[@]}"; do
  while [ "$(retained)" -lt $((mib << 20)) ]; do
    "$ordinate" bench fuzzylog --endpoints "$native" --value 1024 --batch 32 --connections 2 --outstanding 4 --colours 96 \
      --seconds 1 > "$folder/bench.out"
  done
  sleep 2
  bytes=$(retained)
  wrote=$(awk '/^write_bytes/ { print int($2 / 1e6) }' "/proc/${pids[0]}/io")
  kill -9 "${pids[0]}"
  wait "${pids[0]}" 2>/dev/null || true
  began=$(date +%s%N)
  start
  await "$bytes"
  echo "$((bytes / 1000000)) MB of nodes: served again after $((($(date +%s%N) - began) / 1000000)) ms; $wrote MB written in the run before"
done
