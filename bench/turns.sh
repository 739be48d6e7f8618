#!/usr/bin/env bash
# The servers' processor time of an operation, of two binaries in turn (A B, B A, ...): puts, and sets of znodes over four shards of
# Mason. A machine that does other work as well slows both.
# Usage: bench/turns.sh A B [PAIRS [SECONDS]]
set -euo pipefail
cd "$(dirname "$0")/.."
one=$(realpath "$1") other=$(realpath "$2") pairs=${3:-5} seconds=${4:-3}
ORDINATE_BINARY=$one
source bench/lib/servers.sh

figure() { python3 -c 'import json, sys; print(json.load(sys.stdin)["server_cpu_us_per_op"])'; }

kv() { "$ordinate" bench kv --seconds "$seconds" --output json | figure; }

zk() {
  start_ordinate zookeeper $'[coordination]\nengine = "mason"\nshards = 4'
  for address in ${endpoints//,/ }; do
    until "$ordinate" zk --servers "$address" ls / > /dev/null 2>&1; do sleep 0.1; done
  done
  # From then on a host retains freed memory as it does under load.
  sleep 3
  "$ordinate" bench zk --mix set --sessions 30 --outstanding 64 --seconds "$seconds" --endpoints "$endpoints" \
    --processes "$(processes)" --output json > "$folder.figure"
  next_server > /dev/null 2>&1
  figure < "$folder.figure"
  rm "$folder.figure"
}

for load in kv zk; do
  for pair in $(seq "$pairs"); do
    order=("$one" "$other")
    ((pair % 2)) || order=("$other" "$one")
    for ordinate in "${order[@]}"; do
      printf '%s\t%s\t%s\n' "$load" "$([[ $ordinate == "$one" ]] && echo A || echo B)" "$("$load")"
    done
  done
done | python3 bench/lib/turns.py
