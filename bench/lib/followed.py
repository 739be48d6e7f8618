"""From lines of load, how many requests one is followed of (0: none), and figure, in rounds: medians, and their ratios to none."""

import statistics
import sys

figures = {}
for line in sys.stdin:
    load, one_in, figure = line.split("\t")
    print(line, end="", file=sys.stderr)
    figures.setdefault(load, {}).setdefault(one_in, []).append(float(figure))
for load, of in figures.items():
    for one_in in sorted(of, key=int):
        ratios = [followed / none for followed, none in zip(of[one_in], of["0"])]
        print(f"{load}: one in {one_in}: {statistics.median(of[one_in]):.2f} us, {statistics.median(ratios):.3f} of none, by sums {sum(of[one_in]) / sum(of['0']):.3f}")
