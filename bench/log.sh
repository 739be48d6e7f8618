#!/usr/bin/env bash
# The shared log, three servers on this machine, fsync on a majority before each acknowledgement, entries of 64 bytes. Prints two tables.
# The first has Ordinate's own load (ordinate bench log) on each of the log's engines, a new cluster for each line, with ratios to corfu,
# the baseline. The second has Kafka's own load generators (ProducerPerformance with acks=all, then ConsumerPerformance; one of
# each) against Apache Kafka, pinned and installed by scripts/clients.sh, with fsync of every append
# (log.flush.interval.messages=1) and a topic of one or twelve partitions, and against Ordinate's Kafka port. Every run is bounded
# in entries and in seconds. Needs a JDK and maven for the second table.
# Usage: bench/log.sh [SECONDS]
# ORDINATE_BINARY: the server (target/release/ordinate). BENCH_WORKLOADS: MIX:CONNECTIONSxOUTSTANDINGxBATCH, separated by spaces; a mix
# is append or read, a batch how many entries a call has. BENCH_ENGINES: which of mason, paxos, corfu, fuzzylog. BENCH_PEERS: which of kafka,
# kafka-12, ordinate; empty: no second table. BENCH_RECORDS: how many records the second table's runs have.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-5}
# Batching clients, then pipelined calls of one entry, then one call at a time.
workloads=${BENCH_WORKLOADS:-append:30x16x32 append:30x64x1 append:1x1x1 read:30x16x32 read:30x64x1 read:1x1x1}
engines=${BENCH_ENGINES:-mason paxos corfu fuzzylog}
peers=${BENCH_PEERS-kafka kafka-12 ordinate}
records=${BENCH_RECORDS:-1000000}
source bench/lib/servers.sh

for workload in $workloads; do
  mix=${workload%%:*}
  IFS=x read -r connections outstanding batch <<< "${workload#*:}"
  for engine in $engines; do
    echo "$engine $workload" >&2
    json=$("$ordinate" bench log --engine "$engine" --mix "$mix" --connections "$connections" --outstanding "$outstanding" \
      --batch "$batch" --seconds "$seconds" --output json) || json=null
    record "$engine" "$workload" "$json"
  done
done
print_table corfu
: > "$results"
[ -n "$peers" ] || exit 0

scripts/clients.sh kafka-server
jars=$(realpath "${ORDINATE_PEERS:-target/clients}")/kafka-server/jars
kafka() { timeout "${KAFKA_WITHIN:-180}" java -Xmx512m -cp "$jars/*" "$@"; }

# PARTITIONS
start_kafka() {
  local voters=1@127.0.0.1:$((port + 11)),2@127.0.0.1:$((port + 12)),3@127.0.0.1:$((port + 13))
  for n in 1 2 3; do
    cat > "$folder/kafka$n.properties" <<PROPERTIES
process.roles=broker,controller
node.id=$n
controller.quorum.voters=$voters
listeners=PLAINTEXT://127.0.0.1:$((port + n - 1)),CONTROLLER://127.0.0.1:$((port + 10 + n))
controller.listener.names=CONTROLLER
log.dirs=$folder/kafka$n
log.flush.interval.messages=1
min.insync.replicas=2
offsets.topic.replication.factor=3
offsets.topic.num.partitions=3
group.initial.rebalance.delay.ms=0
PROPERTIES
    kafka kafka.tools.StorageTool format --cluster-id MkU3OEVBNTcwNTJENDM2Qg --config "$folder/kafka$n.properties" > /dev/null 2>&1
    java -Xms512m -Xmx512m -cp "$jars/*" kafka.Kafka "$folder/kafka$n.properties" > "$folder/kafka$n.log" 2>&1 &
    pids+=($!)
  done
  # Until all three have found one another.
  for _ in $(seq 20); do
    kafka org.apache.kafka.tools.TopicCommand --bootstrap-server "$endpoints" --create --topic bench --partitions "$1" \
      --replication-factor 3 > "$folder/topic" 2>&1 && return
    sleep 1
  done
  cat "$folder/topic" >&2
  return 1
}

start_brokers() {
  # One machine, three ports.
  local brokers="h1=127.0.0.1:$port,h2=127.0.0.1:$((port + 1)),h3=127.0.0.1:$((port + 2))"
  start_ordinate kafka $'[log]\nspaces = 4\nspace_bytes = "1GiB"\n[kafka]\nbrokers = '"\"$brokers\""
  for _ in $(seq 60); do
    "$ordinate" log create bench --retain-bytes 1GiB --endpoints 127.0.0.1:$((port + 21)) 2> "$folder/create" && return
    sleep 0.5
  done
  cat "$folder/create" >&2
  return 1
}

# Hundredths of a second of processor time that the servers have used.
ticks() { for pid in "${pids[@]}"; do cat "/proc/$pid/stat"; done | sed 's/.*) //' | awk '{ sum += $12 + $13 } END { print sum }'; }

# Runs a load generator and prints what it found, as ordinate bench does, with the servers' processor time.
measure() {
  local before after
  before=$(ticks)
  "$@" > "$folder/said" 2>&1 || { tail -n 5 "$folder/said" >&2; echo null; return; }
  after=$(ticks)
  python3 bench/lib/kafka.py "$folder/said" "$records" $((after - before)) || { tail -n 5 "$folder/said" >&2; echo null; }
}

produce() {
  kafka org.apache.kafka.tools.ProducerPerformance --topic bench --num-records "$1" --record-size 64 --throughput -1 \
    --producer-props bootstrap.servers="$endpoints" acks=all linger.ms=5 batch.size=65536
}

consume() {
  kafka org.apache.kafka.tools.ConsumerPerformance --topic bench --bootstrap-server "$endpoints" --messages "$records" --timeout 60000
}

for peer in $peers; do
  case $peer in
    kafka) start_kafka 1 ;;
    kafka-12) start_kafka 12 ;;
    ordinate) start_brokers ;;
    *) echo "unknown peer $peer" >&2; exit 2 ;;
  esac
  # The servers' own compilers have seen the load before it is measured.
  produce $((records / 5)) > "$folder/warm" 2>&1 || tail -n 5 "$folder/warm" >&2
  echo "$peer produce" >&2
  record "$peer" produce "$(measure produce "$records")"
  echo "$peer consume" >&2
  record "$peer" consume "$(measure consume)"
  next_server
done
print_table kafka
