# Sourced after servers.sh by the benchmarks of the coordination service: three servers of Apache ZooKeeper (pinned, installed by
# scripts/clients.sh), or of Ordinate, in $folder; started again there, they go on with what they have.
scripts/clients.sh java
jars=$(realpath "${ORDINATE_PEERS:-target/clients}")/jars

start_zookeeper() {
  for n in 1 2 3; do
    mkdir -p "$folder/zk$n"
    echo $n > "$folder/zk$n/myid"
    {
      printf 'tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\nadmin.enableServer=false\n'
      printf 'dataDir=%s\nclientPort=%d\n4lw.commands.whitelist=*\n' "$folder/zk$n" $((port + n - 1))
      for m in 1 2 3; do echo "server.$m=127.0.0.1:$((port + 10 + m)):$((port + 20 + m))"; done
    } > "$folder/zk$n.cfg"
    java -Xms1g -Xmx${ZOOKEEPER_HEAP:-1g} -cp "$jars/*" org.apache.zookeeper.server.quorum.QuorumPeerMain "$folder/zk$n.cfg" \
      > "$folder/zk$n.log" 2>&1 &
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

# ENGINE
start() {
  case $1 in
    zookeeper) start_zookeeper ;;
    mason) start_ordinate zookeeper $'[coordination]\nengine = "mason"\nshards = 4' ;;
    mason-sequential)
      start_ordinate zookeeper $'[coordination]\nengine = "mason"\nshards = 4\nreads = "sequential"'
      ;;
    fuzzylog) start_ordinate zookeeper $'[coordination]\nengine = "fuzzylog"\nshards = 4' ;;
    paxos) start_ordinate zookeeper $'[coordination]\nengine = "paxos"' ;;
    *) echo "unknown engine $1" >&2; exit 2 ;;
  esac
}
