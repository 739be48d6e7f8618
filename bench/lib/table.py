"""One table of results: a line a workload and server, with ratios to the base server. Usage: table.py BASE RESULTS"""
import json
import sys

base_name, path = sys.argv[1:]
rows = [line.rstrip("\n").split("\t") for line in open(path)]
found = {(server, workload): json.loads(text) for server, workload, text in rows}
workloads = list(dict.fromkeys(workload for _, workload, _ in rows))
servers = list(dict.fromkeys(server for server, _, _ in rows))
line = "%-18s %-17s %10s %7s %9s %9s %9s %7s"
print(line % ("workload", "server", "ops/s", "ratio", "p50_us", "p99_us", "cpu_us/op", "ratio"))
for workload in workloads:
    base = found.get((base_name, workload))
    for server in servers:
        it = found.get((server, workload))
        if not it:
            print("%-18s %-17s failed" % (workload, server))
            continue

        def ratio(key):
            return "%.2f" % (it[key] / base[key]) if base and base.get(key) and it.get(key) else "-"

        def known(key, form):
            return "-" if it.get(key) is None else form % it[key]

        print(line % (workload, server, known("ops_per_second", "%.0f"), ratio("ops_per_second"), known("p50_us", "%.0f"),
                      known("p99_us", "%.0f"), known("server_cpu_us_per_op", "%.2f"), ratio("server_cpu_us_per_op")))
