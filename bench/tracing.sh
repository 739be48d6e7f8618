#!/usr/bin/env bash
# What tracing costs: the servers' processor time of a set of a znode over four shards of Mason, without tracing, with one request in a
# thousand followed, and with each of them, in turns. A collector takes the spans and drops them.
# Usage: bench/tracing.sh [TURNS [SECONDS]]
# ORDINATE_BINARY: the server (target/release/ordinate).
set -euo pipefail
cd "$(dirname "$0")/.."
turns=${1:-5} seconds=${2:-4}
source bench/lib/servers.sh

collector_port=$((port + 40))
python3 - "$collector_port" > /dev/null 2>&1 <<'PYTHON' &
import http.server, sys
class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Collector).serve_forever()
PYTHON
collector=$!
trap 'kill $collector; stop; rm -rf "$folder" "$results"' EXIT

# SECTION: microseconds of an operation with it.
cost() {
  start_ordinate zookeeper $'[coordination]\nengine = "mason"\nshards = 4\n'"$1"
  for address in ${endpoints//,/ }; do
    until "$ordinate" zk --servers "$address" ls / > /dev/null 2>&1; do sleep 0.1; done
  done
  sleep 3
  "$ordinate" bench zk --mix set --sessions 30 --outstanding 64 --seconds "$seconds" --endpoints "$endpoints" \
    --processes "$(processes)" --output json > "$folder.figure"
  next_server > /dev/null 2>&1
  python3 -c 'import json, sys; print(json.load(sys.stdin)["server_cpu_us_per_op"])' < "$folder.figure"
  rm "$folder.figure"
}

traced() { printf '[trace]\nendpoint = "http://127.0.0.1:%s"\none_in = %s' "$collector_port" "$1"; }

for turn in $(seq "$turns"); do
  order=(off 1000 1)
  ((turn % 2)) || order=(1 1000 off)
  for one_in in "${order[@]}"; do
    section=''
    [[ $one_in == off ]] || section=$(traced "$one_in")
    printf '%s\t%s\t%s\n' "$turn" "$one_in" "$(cost "$section")"
  done
done | python3 -c '
import statistics, sys
turns = {}
for line in sys.stdin:
    turn, one_in, cost = line.split()
    turns.setdefault(turn, {})[one_in] = float(cost)
for one_in in ("off", "1000", "1"):
    costs = [turn[one_in] for turn in turns.values()]
    ratios = [turn[one_in] / turn["off"] for turn in turns.values()]
    print(f"one_in {one_in:<5} {statistics.median(costs):8.2f} us an operation, over off: "
          f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
'
