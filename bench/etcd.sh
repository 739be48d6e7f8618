#!/usr/bin/env bash
# The same load on etcd (built from its published Go modules, pinned by bench/etcd/go.sum) and on Ordinate's key-value service, three
# servers each on this machine, one after the other, both with fsync on a majority before each acknowledgement. Prints one table, a
# line a workload and server, with ratios to etcd. Needs go.
# Usage: bench/etcd.sh [SECONDS]
# ORDINATE_BINARY: the server (target/release/ordinate). BENCH_WORKLOADS: MIX:CONNECTIONSxOUTSTANDING, separated by spaces; a mix
# is put, get (linearizable) or mixed95 (95 % get). BENCH_SERVERS: which of etcd, ordinate. BENCH_KEYS: how many keys.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}
# Large loads, then one call at a time by many and by one.
workloads=${BENCH_WORKLOADS:-put:30x64 get:30x64 mixed95:30x64 put:100x1 get:100x1 put:1x1 get:1x1}
servers=${BENCH_SERVERS:-etcd ordinate}
keys=${BENCH_KEYS:-20000}
source bench/lib/servers.sh
tool=$(realpath --canonicalize-missing "${ORDINATE_PEERS:-target/clients}")/etcd-bench
(cd bench/etcd && GOFLAGS=-mod=readonly GOTOOLCHAIN=local go build -o "$tool" .)

address() { echo "http://127.0.0.1:$((port + $1))"; }

start_etcd() {
  for n in 1 2 3; do
    "$tool" server --name "e$n" --data-dir "$folder/e$n" --log-level error --snapshot-count 100000 \
      --quota-backend-bytes 8589934592 --listen-client-urls "$(address "$n")" --advertise-client-urls "$(address "$n")" \
      --listen-peer-urls "$(address $((n + 10)))" --initial-advertise-peer-urls "$(address $((n + 10)))" \
      --initial-cluster "e1=$(address 11),e2=$(address 12),e3=$(address 13)" > "$folder/e$n.log" 2>&1 &
    pids+=($!)
  done
}

for server in $servers; do
  for workload in $workloads; do
    mix=${workload%%:*} load=${workload#*:}
    case $mix in
      put) reads=0 ;;
      get) reads=1 ;;
      mixed95) reads=0.95 ;;
      *) echo "unknown mix $mix" >&2; exit 2 ;;
    esac
    echo "$server $workload" >&2
    shape=(--connections "${load%x*}" --outstanding "${load#*x}" --reads "$reads" --keys "$keys" --seconds "$seconds")
    case $server in
      # Each workload on a new cluster: neither carries the other's history.
      etcd)
        start_etcd
        json=$("$tool" load --endpoints "$(address 1),$(address 2),$(address 3)" --processes "$(processes)" "${shape[@]}") \
          || { tail -n 5 "$folder"/*.log >&2; json=null; }
        ;;
      ordinate) json=$("$ordinate" bench kv "${shape[@]}" --output json) || json=null ;;
      *) echo "unknown server $server" >&2; exit 2 ;;
    esac
    record "$server" "$workload" "$json"
    next_server
  done
done
print_table etcd
