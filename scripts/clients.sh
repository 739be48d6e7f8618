#!/usr/bin/env bash
# Installs what compatibility is tested with, pinned, into target/clients: kazoo and its suite (venv/), Apache ZooKeeper with its Java
# client, and Curator (jars/, classes/); with `go` named, the Go client (go-smoke); with `kafka` named, librdkafka's Python
# client and Kafka's Java client (kafka/); with `kafka-server` named, Apache Kafka itself with its load generators
# (kafka-server/). Needs python3, a JDK and maven; go for its client. Does nothing that is done already.
set -euo pipefail
cd "$(dirname "$0")/.."
peers=cli/tests/clients
into=${ORDINATE_PEERS:-target/clients}
mkdir -p "$into"
into=$(cd "$into" && pwd)
# Tests that run side by side all call this: one at a time.
exec 9> "$into/lock"
flock 9

# A registry that accepts a connection and says nothing more must not hold up the tests.
bounded() { timeout --kill-after=5 180 "$@" 9>&-; }

say() { echo "clients: $*" >&2; }
# Whether `mark` was made of this very file.
fresh() { cmp --silent "$1" "$into/$2"; }

python() {
  fresh $peers/peers/requirements.txt requirements.done && return
  say "kazoo and its tests into $into/venv"
  python3 -m venv "$into/venv"
  bounded "$into/venv/bin/pip" install --quiet --require-hashes --requirement $peers/peers/requirements.txt
  cp $peers/peers/requirements.txt "$into/requirements.done"
}

java_jars() {
  fresh $peers/peers/SHA256SUMS jars.done && return
  say "Apache ZooKeeper and Curator into $into/jars"
  rm -rf "$into/jars"
  bounded mvn --quiet --batch-mode --no-transfer-progress --file $peers/peers/pom.xml \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DoutputDirectory="$into/jars" -DincludeScope=runtime
  (cd "$into/jars" && sha256sum --check --quiet --strict) < $peers/peers/SHA256SUMS
  cp $peers/peers/SHA256SUMS "$into/jars.done"
}

java_classes() {
  cat $peers/java/*.java > "$into/java.now"
  cmp --silent "$into/java.now" "$into/java.done" && return
  say "the Java tests into $into/classes"
  mkdir -p "$into/classes"
  javac -nowarn -d "$into/classes" -classpath "$into/jars/*" $peers/java/*.java
  mv "$into/java.now" "$into/java.done"
}

go_client() {
  command -v go > /dev/null || { say "there is no go"; return 1; }
  cat $peers/go/* > "$into/go.now"
  cmp --silent "$into/go.now" "$into/go.done" && return
  say "the Go tests into $into/go-smoke"
  (cd $peers/go && GOFLAGS=-mod=readonly GOTOOLCHAIN=local bounded go build -o "$into/go-smoke" .)
  mv "$into/go.now" "$into/go.done"
}

kafka_clients() {
  cat $peers/kafka/* > "$into/kafka.now"
  cmp --silent "$into/kafka.now" "$into/kafka.done" && return
  say "Kafka's clients into $into/kafka"
  rm -rf "$into/kafka"
  python3 -m venv "$into/kafka/venv"
  bounded "$into/kafka/venv/bin/pip" install --quiet --require-hashes --requirement $peers/kafka/requirements.txt
  bounded mvn --quiet --batch-mode --no-transfer-progress --file $peers/kafka/pom.xml \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DoutputDirectory="$into/kafka/jars" -DincludeScope=runtime
  (cd "$into/kafka/jars" && sha256sum --check --quiet --strict) < $peers/kafka/SHA256SUMS
  javac -nowarn -d "$into/kafka/classes" -classpath "$into/kafka/jars/*" $peers/kafka/*.java
  mv "$into/kafka.now" "$into/kafka.done"
}

kafka_server() {
  fresh bench/kafka/SHA256SUMS kafka-server.done && return
  say "Apache Kafka into $into/kafka-server"
  rm -rf "$into/kafka-server"
  bounded mvn --quiet --batch-mode --no-transfer-progress --file bench/kafka/pom.xml \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DoutputDirectory="$into/kafka-server/jars" -DincludeScope=runtime
  (cd "$into/kafka-server/jars" && sha256sum --check --quiet --strict) < bench/kafka/SHA256SUMS
  cp bench/kafka/SHA256SUMS "$into/kafka-server.done"
}

wanted=${*:-python java}
case " $wanted " in *" python "*) python ;; esac
case " $wanted " in *" java "*) java_jars; java_classes ;; esac
case " $wanted " in *" go "*) go_client ;; esac
case " $wanted " in *" kafka "*) kafka_clients ;; esac
case " $wanted " in *" kafka-server "*) kafka_server ;; esac
