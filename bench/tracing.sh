#!/usr/bin/env bash
# What following requests costs: the servers' processor time of a put of the key-value store and of one of transactions, without traces,
# with one request in 1,000 followed, and with all of them, in turns.
# Usage: bench/tracing.sh [ROUNDS [SECONDS]]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-6} seconds=${2:-2} port=${BENCH_PORT:-24190}
ordinate=$(realpath "${ORDINATE_BINARY:-${CARGO_TARGET_DIR:-target}/release/ordinate}")
python3 bench/lib/collector.py "$port" &
collector=$!
trap 'kill "$collector"; wait "$collector" 2> /dev/null || true' EXIT

figure() { python3 -c 'import json, sys; print(json.load(sys.stdin)["server_cpu_us_per_'"$1"'"])'; }
kv() { "$ordinate" bench kv --seconds "$seconds" --output json | figure op; }
txn() { "$ordinate" bench txn --workload put --seconds "$seconds" --output json | figure transaction; }

for load in kv txn; do
  for round in $(seq "$rounds"); do
    order=(0 1000 1)
    ((round % 2)) || order=(1 1000 0)
    for one_in in "${order[@]}"; do
      unset ORDINATE_TRACE__ENDPOINT ORDINATE_TRACE__ONE_IN
      ((one_in == 0)) || export ORDINATE_TRACE__ENDPOINT=http://127.0.0.1:$port ORDINATE_TRACE__ONE_IN=$one_in
      printf '%s\t%s\t%s\n' "$load" "$one_in" "$("$load")"
    done
  done
done | python3 bench/lib/followed.py
