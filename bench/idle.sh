#!/usr/bin/env bash
# What three hosts cost that nobody uses, with all services on: messages to other hosts, fsyncs and rounds of the reactor, each a second
# and host, and the share of a core.
# Usage: bench/idle.sh [SECONDS]
# ORDINATE_BINARY: the server (target/release/ordinate).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
source bench/lib/servers.sh

start_ordinate zookeeper $'[coordination]\nengine = "mason"\nshards = 4\n[kv]\nengine = "paxos"\n[log]\nengine = "mason"\nspaces = 4
[sequence]\nspaces = 1\n[txn]\nshards = 2\n[clock]\nsource = "fixed"\nepsilon = "200us"'

# Reads of all services go on for this long after a host was asked for its metrics.
asked_for=5
# HOST WHEN: its counters.
scrape() { curl -sf "http://127.0.0.1:$((port + 30 + $1))/metrics" > "$folder/metrics.$1.$2"; }
# HOST WHEN: hundredths of a second of processor time.
ticks() { awk '{ print $14 + $15 }' "/proc/${pids[$1 - 1]}/stat" > "$folder/ticks.$1.$2"; }

# HOST NAME: how much a counter rose, a second.
rate() {
  awk -v name="$2" -v seconds=$((seconds + asked_for)) '$1 == name { value[FILENAME] = $2 }
    END { printf "%.1f", (value[ARGV[2]] - value[ARGV[1]]) / seconds }' "$folder/metrics.$1.before" "$folder/metrics.$1.after"
}

# Elections, first snapshots and what txn collects after its first 30 s are over by then.
sleep 45
for n in 1 2 3; do scrape $n before; done
sleep $asked_for
for n in 1 2 3; do ticks $n before; done
sleep "$seconds"
for n in 1 2 3; do ticks $n after; done
for n in 1 2 3; do scrape $n after; done
printf '%-5s %-22s %-18s %-10s %-10s %s\n' host 'messages out a second' 'of them repeated' fsyncs rounds 'of a core'
for n in 1 2 3; do
  ticks=$(($(cat "$folder/ticks.$n.after") - $(cat "$folder/ticks.$n.before")))
  printf '%-5s %-22s %-18s %-10s %-10s %s %%\n' h$n "$(rate $n ordinate_messages_out_total)" \
    "$(rate $n ordinate_messages_repeated_out_total)" "$(rate $n ordinate_fsyncs_total)" "$(rate $n ordinate_bursts_total)" \
    "$(awk -v ticks=$ticks -v seconds="$seconds" 'BEGIN { printf "%.2f", ticks / seconds }')"
done
