#!/usr/bin/env bash
# What adding and removing shards costs those who write meanwhile: three servers on this machine with NODES znodes of 100 bytes over
# four shards; then over five, and over four again. Prints how long each change took, and what ten sessions that set one
# node after the other saw meanwhile: their longest wait is the pause.
# Usage: bench/shards.sh [NODES]
# ORDINATE_BINARY: the server (target/release/ordinate).
set -euo pipefail
cd "$(dirname "$0")/.."
nodes=${1:-1000000}
source bench/lib/servers.sh
source bench/lib/coordination.sh

# SECONDS: what ten sessions see for so long.
sets() {
  "$ordinate" bench zk --endpoints "$endpoints" --sessions 10 --outstanding 1 --nodes "$nodes" --seconds "$1" --output json
}

start mason
until_served
echo "preparing $nodes znodes" >&2
sets 2 > /dev/null
for shards in 5 4; do
  sets 12 > "$folder/sets.json" &
  load=$!
  sleep 6
  "$ordinate" cluster shards $shards --admin 127.0.0.1:$((port + 31)) > "$folder/change"
  wait $load
  python3 - "$folder/sets.json" "$shards" "$(awk 'END { print $1 }' "$folder/change")" <<'PYTHON'
import json, sys
seen = json.load(open(sys.argv[1]))
print(f"to {sys.argv[2]} shards: {sys.argv[3]} s; {seen['ops_per_second']:.0f} sets/s meanwhile, p50 {seen['p50_us'] / 1000:.1f} ms, "
      f"longest {seen['max_us'] / 1000:.0f} ms, {seen['failed']} failed")
PYTHON
done
