"""The share of assertions in what callgrind has counted. Arguments: NAME=FILE, of the dumps of one run, in the repository's folder."""

import collections
import os
import re
import sys

FOLDERS = ("engines", "services", "parts", "kernel", "wire", "drivers/runtime", "server")
ASSERTION = re.compile(r"(?<![\w_])(?:invariant|assert|assert_eq|assert_ne)!\(")
LINE = re.compile(r"^(\+\d+|-\d+|\*|\d+) (\d+)")


def spans_of(path):
    """The lines of each assertion of a source that is compiled into a release, first and last, with its first words."""
    with open(path, encoding="utf-8") as file:
        text = file.read().split("#[cfg(test)]")[0]
    for found in ASSERTION.finditer(text):
        before = text[text.rfind("\n", 0, found.start()) : found.start()]
        if "//" in before or "const _" in before:
            continue
        end, depth = found.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        first, last = (text.count("\n", 0, at) + 1 for at in (found.start(), end))
        yield first, last, " ".join(text[found.start() : end].split())[:70]


def assertions():
    """By the path of a source."""
    spans = {}
    for top in FOLDERS:
        for folder, _, files in os.walk(top):
            for name in files:
                path = os.path.join(folder, name)
                if name.endswith(".rs") and "/src/" in path:
                    spans[path] = list(spans_of(path))
    return spans


def counts(path):
    """Instructions by source and line, and those of calls from there."""
    own, called, names = collections.Counter(), collections.Counter(), {}
    source, line, is_call = "", 0, False

    def name_of(text):
        number, _, name = text.partition(" ")
        if name:
            names[number] = name.removeprefix(os.getcwd() + "/")
        return names.get(number, "")

    with open(path, encoding="utf-8", errors="replace") as file:
        for text in file:
            text = text.rstrip("\n")
            if text[:3] in ("fl=", "fi=", "fe="):
                source = name_of(text[3:])
            elif text[:4] in ("cfi=", "cfl="):
                name_of(text[4:])
            elif text.startswith("calls="):
                is_call = True
            elif found := LINE.match(text):
                place, count = found[1], int(found[2])
                line = line if place == "*" else line + int(place) if place[0] in "+-" else int(place)
                (called if is_call else own)[source, line] += count
                is_call = False
    return own, called


def main():
    spans = assertions()
    for argument in sys.argv[1:]:
        name, _, path = argument.partition("=")
        own, called = counts(path)
        total, found = sum(own.values()), collections.Counter()
        for source, line in own.keys() | called.keys():
            for first, last, words in spans.get(source, ()):
                if first <= line <= last:
                    found[source, first, words] += own[source, line] + called[source, line]
        print(f"{name}: {sum(found.values()) / total:.2%} of {total:,} instructions")
        for (source, line, words), count in found.most_common(3):
            print(f"  {count / total:.3%}  {source}:{line}  {words}")


main()
