# Sourced by the benchmarks that run other servers beside Ordinate: a folder and processes that are gone at the end, and one line a
# result in $results (SERVER, WORKLOAD, JSON, with tabs between), of which bench/lib/table.py makes the table.
ordinate=$(realpath "${ORDINATE_BINARY:-${CARGO_TARGET_DIR:-target}/release/ordinate}")
folder=$(mktemp -d --tmpdir="${BENCH_FOLDER:-/var/tmp}")
results=$folder.results
: > "$results"
port=${BENCH_PORT:-24100}
# Of the protocol that is measured, on three servers.
endpoints=127.0.0.1:$port,127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2))
pids=()

stop() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  pids=()
}
trap 'stop; rm -rf "$folder" "$results"' EXIT

# PROTOCOL SECTIONS: three hosts in $folder that serve PROTOCOL at $endpoints, with these sections in their cluster file; their native
# ports are $port + 21 to 23, those of admin ten further on. Started again there, they go on with what they have.
start_ordinate() {
  { printf 'cluster = "bench"\n%s\n[hosts]\n' "$2"
    for n in 1 2 3; do echo "h$n = \"127.0.0.1:$((port + 10 + n))\""; done
  } > "$folder/cluster.toml"
  for n in 1 2 3; do
    "$ordinate" serve --config "$folder/cluster.toml" --host h$n --set listen.native=127.0.0.1:$((port + 20 + n)) \
      --set listen.admin=127.0.0.1:$((port + 30 + n)) --set listen.$1=127.0.0.1:$((port + n - 1)) > "$folder/h$n.log" 2>&1 &
    pids+=($!)
  done
}

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
