#!/usr/bin/env bash
# The same load on Apache ZooKeeper and on Ordinate, three servers each on this machine, one after the other. Prints a table.
# Usage: scripts/bench-zookeeper.sh [SECONDS]
# ORDINATE_BINARY: the server (target/release/ordinate). BENCH_MIXES, BENCH_LOADS (SESSIONSxOUTSTANDING): what is asked.
# BENCH_ENGINES: which of zookeeper, mason, mason-sequential (reads that promise what ZooKeeper's do), paxos.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}
mixes=${BENCH_MIXES:-set create get mixed}
loads=${BENCH_LOADS:-30x32 3x1}
engines=${BENCH_ENGINES:-zookeeper mason mason-sequential paxos}
ordinate=$(realpath "${ORDINATE_BINARY:-${CARGO_TARGET_DIR:-target}/release/ordinate}")
scripts/clients.sh java
jars=$(realpath "${ORDINATE_PEERS:-target/clients}")/jars
folder=$(mktemp -d --tmpdir="${BENCH_FOLDER:-/var/tmp}")
port=${BENCH_PORT:-24100}
pids=()
stop() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  pids=()
}
trap 'stop; rm -rf "$folder"' EXIT
endpoints=127.0.0.1:$port,127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2))

start_zookeeper() {
  for n in 1 2 3; do
    mkdir -p "$folder/zk$n"
    echo $n > "$folder/zk$n/myid"
    {
      printf 'tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\nadmin.enableServer=false\n'
      printf 'dataDir=%s\nclientPort=%d\n4lw.commands.whitelist=*\n' "$folder/zk$n" $((port + n - 1))
      for m in 1 2 3; do echo "server.$m=127.0.0.1:$((port + 10 + m)):$((port + 20 + m))"; done
    } > "$folder/zk$n.cfg"
    java -Xms1g -Xmx1g -cp "$jars/*" org.apache.zookeeper.server.quorum.QuorumPeerMain "$folder/zk$n.cfg" \
      > "$folder/zk$n.log" 2>&1 &
    pids+=($!)
  done
}

start_ordinate() {
  { printf 'cluster = "bench"\n[coordination]\n%s\n[hosts]\n' "$1"
    for n in 1 2 3; do echo "h$n = \"127.0.0.1:$((port + 10 + n))\""; done
  } > "$folder/cluster.toml"
  for n in 1 2 3; do
    "$ordinate" serve --config "$folder/cluster.toml" --host h$n --set listen.native=127.0.0.1:$((port + 20 + n)) \
      --set listen.admin=127.0.0.1:$((port + 30 + n)) --set listen.zookeeper=127.0.0.1:$((port + n - 1)) \
      > "$folder/h$n.log" 2>&1 &
    pids+=($!)
  done
}

printf '%-17s %-7s %-7s %10s %9s %9s %9s %14s\n' server mix load ops/s p50_us p99_us p99.9_us cpu_us_per_op
for engine in $engines; do
  case $engine in
    zookeeper) start_zookeeper ;;
    mason) start_ordinate $'engine = "mason"\nshards = 4' ;;
    mason-sequential) start_ordinate $'engine = "mason"\nshards = 4\nreads = "sequential"' ;;
    paxos) start_ordinate 'engine = "paxos"' ;;
  esac
  sleep 6
  for load in $loads; do
    for mix in $mixes; do
      if ! json=$("$ordinate" bench zk --endpoints "$endpoints" --mix "$mix" --sessions "${load%x*}" \
          --outstanding "${load#*x}" --seconds "$seconds" --processes "$(IFS=,; echo "${pids[*]}")" --output json); then
        printf '%-17s %-7s %-7s failed\n' "$engine" "$mix" "$load"
        continue
      fi
      python3 - "$engine" "$mix" "$load" "$json" <<'PY'
import json, sys
engine, mix, load, text = sys.argv[1:]
it = json.loads(text)
print("%-17s %-7s %-7s %10.0f %9.0f %9.0f %9.0f %14.1f" % (engine, mix, load, it["ops_per_second"], it["p50_us"], it["p99_us"], it["p999_us"], it["server_cpu_us_per_op"]))
PY
    done
  done
  stop
  rm -rf "$folder"/*
done
