#!/usr/bin/env bash
# How long three hosts take to serve again after kill -9 of all, by what was written before: milliseconds until each host answers a
# read, and each host's processor time and resident memory by then.
# Usage: bench/restart.sh [NODES ...]     (13000 70000 1000000: znodes of 100 bytes)
# Then once after SECONDS_WRITTEN (8) seconds of each kind of write: what a start has to do again depends on the bytes and on the
# number of entries in the logs since the last snapshots.
# ORDINATE_BINARY: the server (target/release/ordinate).
set -euo pipefail
cd "$(dirname "$0")/.."
source bench/lib/servers.sh
seconds=${SECONDS_WRITTEN:-8}
natives=127.0.0.1:$((port + 21)),127.0.0.1:$((port + 22)),127.0.0.1:$((port + 23))

milliseconds() { date +%s%3N; }
# In MiB, of each host.
resident() { for pid in "${pids[@]}"; do awk '/VmRSS/ { printf "%d ", $2 / 1024 }' "/proc/$pid/status"; done; }
# In milliseconds, of each host: user and system time are counted in hundredths of a second.
processor() { for pid in "${pids[@]}"; do awk '{ printf "%d ", ($14 + $15) * 10 }' "/proc/$pid/stat"; done; }
row() { printf '%-34s %-14s %-20s %-14s %s\n' "$@"; }

# SERVICE: cluster file's sections, the addresses to ask, and a read that any host answers.
coordination() {
  sections=$'[coordination]\nengine = "mason"\nshards = 4' addresses=$endpoints
  read_at() { "$ordinate" zk --servers "$1" ls /; }
}
kv() {
  sections= addresses=$natives
  read_at() { { "$ordinate" kv get nothing --endpoints "$1" 2>&1 || true; } | grep "no key"; }
}
log() {
  sections=$'[log]\nspaces = 4' addresses=$natives
  read_at() { "$ordinate" log list --endpoints "$1"; }
}

serves() {
  for _ in $(seq 1200); do
    read_at "$1" > "$folder/answer" 2>&1 && return
    sleep 0.02
  done
  cat "$folder/answer" "$folder"/*.log >&2
  return 1
}

# NAME SERVICE ARGUMENTS...: what `ordinate bench` writes with the arguments, and how long a start takes then.
restart_after() {
  name=$1 service=$2
  shift 2
  "$service"
  start_ordinate zookeeper "$sections"
  for address in ${addresses//,/ }; do serves "$address"; done
  "$ordinate" bench "$@" --endpoints "$addresses" > "$folder/load"
  for pid in "${pids[@]}"; do kill -9 "$pid"; done
  for pid in "${pids[@]}"; do wait "$pid" 2> /dev/null || true; done
  pids=()
  journals=$(for n in 1 2 3; do du -sm "$folder"/*/h$n | awk '{ printf "%d ", $1 }'; done)
  begun=$(milliseconds)
  start_ordinate zookeeper "$sections"
  for address in ${addresses//,/ }; do serves "$address"; done
  row "$name" "$(( $(milliseconds) - begun ))" "$(processor)" "$(resident)" "$journals"
  next_server
}

# FORM: what is written, by its name or as a number of znodes.
form() {
  case $1 in
    creates) restart_after "creates, 8 x 1, $seconds s" coordination zk --mix create --sessions 8 --outstanding 1 --seconds "$seconds" ;;
    creates-64) restart_after "creates, 30 x 64, $seconds s" coordination zk --mix create --sessions 30 --outstanding 64 --seconds "$seconds" ;;
    sets) restart_after "sets, 30 x 64, $seconds s" coordination zk --mix set --sessions 30 --outstanding 64 --seconds "$seconds" ;;
    puts) restart_after "puts, 30 x 64, $seconds s" kv kv --seconds "$seconds" ;;
    puts-4k) restart_after "puts of 4 KiB, 30 x 4, $seconds s" kv kv --seconds "$seconds" --value 4096 --outstanding 4 ;;
    state-1g) restart_after "1 GiB: 262,144 keys of 4 KiB" kv kv --seconds 1 --keys 262144 --value 4096 --outstanding 4 ;;
    log-1g) restart_after "1 GiB on 10,000 keys of 4 KiB" kv kv --seconds "${GIB_SECONDS:-20}" --keys 10000 --value 4096 --outstanding 4 ;;
    appends) restart_after "appends, 30 x 16 x 32, $seconds s" log log --seconds "$seconds" ;;
    *) restart_after "$1 znodes" coordination zk --mix get --nodes "$1" --seconds 1 ;;
  esac
}

row written 'ms till served' 'processor ms, each' 'MiB, each' 'data MiB, each'
for name in ${*:-13000 70000 1000000 creates creates-64 sets puts puts-4k state-1g log-1g appends}; do
  form "$name"
done
