#!/usr/bin/env bash
# The partially ordered log beside the shared log over each of its engines: three servers on this machine, fsync before each
# acknowledgement, nodes and entries of 20 bytes, 96 colours and logs. Prints a table of appends with ratios to the log over mason, and one of
# appends of which some are in two colours, with ratios to none. Every run is bounded in seconds; a new cluster for each line.
# Usage: bench/fuzzylog.sh [SECONDS]
# ORDINATE_BINARY: the server (target/release/ordinate). BENCH_WORKLOADS: CONNECTIONSxOUTSTANDINGxBATCH, separated by spaces; a batch is how
# many nodes a call has. BENCH_ENGINES: which of mason, paxos, corfu. BENCH_TWO: percentages.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}
workloads=${BENCH_WORKLOADS:-30x64x1 30x16x32 1x1x1}
engines=${BENCH_ENGINES-mason paxos corfu}
two=${BENCH_TWO-0 1 10 100}
source bench/lib/servers.sh

# CONNECTIONSxOUTSTANDINGxBATCH ARGUMENTS
fuzzylog() {
  local connections outstanding batch
  IFS=x read -r connections outstanding batch <<< "$1"
  shift
  "$ordinate" bench fuzzylog --connections "$connections" --outstanding "$outstanding" --batch "$batch" \
    --seconds "$seconds" --output json "$@" || echo null
}

for workload in $workloads; do
  IFS=x read -r connections outstanding batch <<< "$workload"
  for engine in $engines; do
    echo "$engine $workload" >&2
    json=$("$ordinate" bench log --engine "$engine" --connections "$connections" --outstanding "$outstanding" --batch "$batch" \
      --value 20 --logs 96 --seconds "$seconds" --output json) || json=null
    record "$engine" "append:$workload" "$json"
  done
  echo "fuzzylog $workload" >&2
  record fuzzylog "append:$workload" "$(fuzzylog "$workload")"
done
echo "fuzzylog play" >&2
record fuzzylog play:30x16x250 "$(fuzzylog 30x16x250 --mix play)"
print_table mason
: > "$results"
[ -n "$two" ] || exit 0
for percent in $two; do
  echo "$percent % in two colours" >&2
  record "$percent%" append:30x64x1 "$(fuzzylog 30x64x1 --two "$percent")"
done
print_table "${two%% *}%"
