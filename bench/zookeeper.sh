#!/usr/bin/env bash
# The same load on Apache ZooKeeper (pinned, installed by scripts/clients.sh) and on Ordinate, three servers each on this machine,
# one after the other. Prints one table, a line a workload and server, with ratios to ZooKeeper.
# Usage: bench/zookeeper.sh [SECONDS]
# ORDINATE_BINARY: the server (target/release/ordinate). BENCH_WORKLOADS: MIX:SESSIONSxOUTSTANDING, separated by spaces.
# BENCH_ENGINES: which of zookeeper, mason, mason-sequential (reads that promise what ZooKeeper's do), fuzzylog, paxos.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}
# Large loads, one request at a time by many and by one, sessions that are notified of a change.
workloads=${BENCH_WORKLOADS:-set:30x64 create:30x64 get:30x64 mixed95:30x64 multi:30x64 set:100x1 get:100x1 set:1x1 get:1x1 watch:300x1}
engines=${BENCH_ENGINES:-zookeeper mason mason-sequential}
source bench/lib/servers.sh
source bench/lib/coordination.sh

for engine in $engines; do
  start "$engine"
  until_served
  for workload in $workloads; do
    mix=${workload%%:*} load=${workload#*:}
    echo "$engine $workload" >&2
    json=$("$ordinate" bench zk --endpoints "$endpoints" --mix "$mix" --sessions "${load%x*}" --outstanding "${load#*x}" \
      --seconds "$seconds" --processes "$(processes)" --output json) || json=null
    record "$engine" "$workload" "$json"
  done
  next_server
done
print_table zookeeper
echo "multi: an operation is a multi of ten setData. watch: an operation is a notification, a latency that of the last session notified."
