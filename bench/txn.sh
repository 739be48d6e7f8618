#!/usr/bin/env bash
# Transactions on three hosts of this machine, each run on a cluster of its own: throughput, latencies, and processor time of the
# servers. Clocks are taken to be off by 100 us. etcd's puts and gets beside them: bench/etcd.sh.
# Usage: bench/txn.sh [SECONDS]
# ORDINATE_BINARY: the server (target/release/ordinate).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}
ordinate=${ORDINATE_BINARY:-target/release/ordinate}
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT

# NAME ARGUMENTS...
measure() {
  local name=$1
  shift
  echo "$name" >&2
  json=$("$ordinate" bench txn --epsilon 100us --seconds "$seconds" --output json "$@") || json=null
  printf '%s\t%s\n' "$name" "$json" >> "$rows"
}

measure "retwis, strict, 64 in flight" --workload retwis --zipf 0.7 --keys 100000 --shards 2 --connections 8 --outstanding 8
measure "retwis, rss, 64 in flight" --workload retwis --level rss --zipf 0.7 --keys 100000 --shards 2 --connections 8 --outstanding 8
measure "put, 30 x 64" --workload put --zipf 0 --connections 30 --outstanding 64
measure "read, strict, 30 x 64" --workload read --zipf 0 --connections 30 --outstanding 64
measure "read, rss, 30 x 64" --workload read --level rss --zipf 0 --connections 30 --outstanding 64
measure "read, one at a time" --workload read --zipf 0 --connections 1 --outstanding 1
measure "put of one shard, one at a time" --workload put --zipf 0 --shards 1 --connections 1 --outstanding 1
measure "ycsb-t (four keys), one at a time" --workload ycsb-t --zipf 0 --connections 1 --outstanding 1

python3 - "$rows" <<'TABLE'
import json
import sys

line = "%-36s %10s %9s %9s %9s %9s %10s"
print(line % ("load", "txn/s", "ro p50", "ro p99", "rw p50", "rw p99", "CPU us"))
for row in open(sys.argv[1]):
    name, text = row.rstrip("\n").split("\t")
    it = json.loads(text)
    if it is None:
        print("%-36s failed" % name)
        continue
    micros = ["%.0f" % it[key] if it[key] else "-" for key in ("read_p50_us", "read_p99_us", "write_p50_us", "write_p99_us")]
    cpu = it["server_cpu_us_per_transaction"]
    print(line % (name, "%.0f" % it["transactions_per_second"], *micros, "-" if cpu is None else "%.2f" % cpu))
TABLE
