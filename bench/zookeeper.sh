#!/usr/bin/env bash
# The same load on Apache ZooKeeper (pinned, installed by scripts/clients.sh) and on Ordinate, three servers each on this machine,
# one after the other. Prints one table, a line a workload and server, with ratios to ZooKeeper.
# Usage: bench/zookeeper.sh [SECONDS]
# ORDINATE_BINARY: the server (target/release/ordinate). BENCH_WORKLOADS: MIX:SESSIONSxOUTSTANDING, separated by spaces.
# BENCH_ENGINES: which of zookeeper, mason, mason-sequential (reads that promise what ZooKeeper's do), paxos.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}
# Large loads, one request at a time by many and by one, sessions that are told of a change.
workloads=${BENCH_WORKLOADS:-set:30x64 create:30x64 get:30x64 mixed95:30x64 multi:30x64 set:100x1 get:100x1 set:1x1 get:1x1 watch:300x1}
engines=${BENCH_ENGINES:-zookeeper mason mason-sequential}
source bench/lib/servers.sh
scripts/clients.sh java
jars=$(realpath "${ORDINATE_PEERS:-target/clients}")/jars
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

# Serving, and not merely started: a session is opened and a node is read.
until_served() {
  for _ in $(seq 60); do
    "$ordinate" zk --servers "$endpoints" ls / > "$folder/ls" 2> "$folder/ls.err" && return
    sleep 0.5
  done
  cat "$folder/ls.err" "$folder"/*.log >&2
  return 1
}

for engine in $engines; do
  case $engine in
    zookeeper) start_zookeeper ;;
    mason) start_ordinate $'engine = "mason"\nshards = 4' ;;
    mason-sequential) start_ordinate $'engine = "mason"\nshards = 4\nreads = "sequential"' ;;
    paxos) start_ordinate 'engine = "paxos"' ;;
    *) echo "unknown engine $engine" >&2; exit 2 ;;
  esac
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
echo "multi: an operation is a multi of ten setData. watch: an operation is a notification, a latency that of the last session told."
