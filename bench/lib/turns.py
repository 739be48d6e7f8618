"""From lines of load, binary (A or B) and figure, in pairs: medians, and the ratios of B to A."""

import statistics
import sys

figures = {}
for line in sys.stdin:
    load, binary, figure = line.split("\t")
    print(line, end="", file=sys.stderr)
    figures.setdefault(load, {}).setdefault(binary, []).append(float(figure))
for load, of in figures.items():
    ratios = [b / a for a, b in zip(of["A"], of["B"])]
    print(
        f"{load}: A {statistics.median(of['A']):.2f} us, B {statistics.median(of['B']):.2f} us, "
        f"median of the ratios {statistics.median(ratios):.3f}, of the sums {sum(of['B']) / sum(of['A']):.3f}"
    )
