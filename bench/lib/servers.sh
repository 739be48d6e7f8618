# Sourced by the benchmarks that run other servers beside Ordinate: a folder and processes that are gone at the end, and one line a
# result in $results (SERVER, WORKLOAD, JSON, with tabs between), of which bench/lib/table.py makes the table.
ordinate=$(realpath "${ORDINATE_BINARY:-${CARGO_TARGET_DIR:-target}/release/ordinate}")
folder=$(mktemp -d --tmpdir="${BENCH_FOLDER:-/var/tmp}")
results=$folder.results
: > "$results"
port=${BENCH_PORT:-24100}
pids=()

stop() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  pids=()
}
trap 'stop; rm -rf "$folder" "$results"' EXIT

# What was started, with commas between.
processes() { (IFS=,; echo "${pids[*]}"); }

# SERVER WORKLOAD JSON
record() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >> "$results"; }

# Ends what was started and empties the folder, before the next server's turn.
next_server() {
  stop
  rm -rf "${folder:?}"/*
}

# BASE: the server that the others are compared with.
print_table() { python3 bench/lib/table.py "$1" "$results"; }
