"""What Kafka's load generators print, as `ordinate bench` says it. Usage: kafka.py SAID RECORDS TICKS"""
import json
import re
import sys

said, records, ticks = open(sys.argv[1]).read(), int(sys.argv[2]), int(sys.argv[3])
cpu = ticks * 10_000 / records
produced = re.findall(
    r"(\d+) records sent, ([\d.]+) records/sec.*?(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th", said)
if produced:
    count, per_second, p50, _, p99 = produced[-1]
    if int(count) != records:
        sys.exit(f"{count} of {records} records were sent")
    found = {"ops_per_second": float(per_second), "p50_us": int(p50) * 1000, "p99_us": int(p99) * 1000}
else:
    lines = said.splitlines()
    at = next((at for at, line in enumerate(lines) if line.startswith("start.time")), None)
    if at is None or at + 1 >= len(lines):
        sys.exit("nothing was measured")
    header, values = lines[at : at + 2]
    row = dict(zip((name.strip() for name in header.split(",")), (value.strip() for value in values.split(","))))
    if "data.consumed.in.nMsg" not in row:
        sys.exit(f"nothing was measured: {values}")
    if int(row["data.consumed.in.nMsg"]) < records:
        sys.exit(f"{row['data.consumed.in.nMsg']} of {records} records were read")
    found = {"ops_per_second": float(row["nMsg.sec"])}
print(json.dumps(found | {"server_cpu_us_per_op": cpu}))
