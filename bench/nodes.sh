#!/usr/bin/env bash
# What many znodes cost: Apache ZooKeeper (pinned, installed by scripts/clients.sh) and Ordinate, three servers each on this machine,
# one after the other, with few and with NODES znodes of 100 bytes: throughput, resident memory of each server, and how long after
# kill -9 of all until every server serves again.
# Usage: bench/nodes.sh [NODES [SECONDS]]
# ORDINATE_BINARY: the server (target/release/ordinate). BENCH_ENGINES: which of zookeeper, mason, mason-sequential, paxos.
set -euo pipefail
cd "$(dirname "$0")/.."
nodes=${1:-1000000}
seconds=${2:-5}
engines=${BENCH_ENGINES:-zookeeper mason}
ZOOKEEPER_HEAP=${ZOOKEEPER_HEAP:-2g}
source bench/lib/servers.sh
source bench/lib/coordination.sh

# WORKLOAD NODES
measure() {
  echo "$engine $1 with $2 znodes" >&2
  json=$("$ordinate" bench zk --endpoints "$endpoints" --mix "$1" --sessions 30 --outstanding 64 --nodes "$2" \
    --seconds "$seconds" --processes "$(processes)" --output json) || json=null
  record "$engine" "$1@$2" "$json"
}

# In MiB, of each server.
resident() { for pid in "${pids[@]}"; do awk '/VmRSS/ { printf "%d ", $2 / 1024 }' "/proc/$pid/status"; done; }

milliseconds() { date +%s%3N; }

each_serves() {
  for endpoint in ${endpoints//,/ }; do
    "$ordinate" zk --servers "$endpoint" ls / > /dev/null 2>&1 || return 1
  done
}

summary=
for engine in $engines; do
  start "$engine"
  until_served
  for mix in set get; do measure $mix 1000; done
  few=$(resident)
  for mix in set get; do measure $mix "$nodes"; done
  many=$(resident)
  for pid in "${pids[@]}"; do kill -9 "$pid"; done
  for pid in "${pids[@]}"; do wait "$pid" 2> /dev/null || true; done
  pids=()
  begun=$(milliseconds)
  start "$engine"
  for _ in $(seq 600); do each_serves && break; sleep 0.1; done
  each_serves || { echo "$engine does not serve again" >&2; cat "$folder"/*.log >&2; exit 1; }
  summary+=$(printf '%-18s %-26s %-26s %s' "$engine" "$few" "$many" "$(( $(milliseconds) - begun ))")$'\n'
  next_server
done
print_table "${engines%% *}"
printf '%-18s %-26s %-26s %s\n' server 'MiB each, 1000 znodes' "MiB each, $nodes" 'ms from kill -9 of all until all three serve'
printf '%s' "$summary"
