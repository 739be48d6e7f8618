#!/bin/sh
# Compares the verdicts and the times of ordinate-check and Porcupine on register histories.
# Needs go and cargo; leaves nothing behind. HISTORIES (1000) and SIZES can be set.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
histories=${HISTORIES:-1000}
sizes=${SIZES:-"1000 10000 100000"}

(cd "$here" && cargo build --quiet --release -p consistency --bins --examples && go build -o "$work/porcupine" .)
generate=$target/release/examples/generate_history
check=$target/release/ordinate-check

mkdir "$work/small"
seed=0
while [ "$seed" -lt "$histories" ]; do
    seed=$((seed + 1))
    "$generate" porcupine 200 "$seed" > "$work/small/$seed.json"
done
"$work/porcupine" "$work"/small/*.json | awk '{ print $1, $2 }' | sort > "$work/theirs"
"$check" --model linearizable --no-strongest -o json "$work"/small/*.json |
    sed 's/{"file":"\([^"]*\)","verdicts":\[{"model":"linearizable","verdict":"\([a-z]*\)".*/\1 \2/' | sort > "$work/ours"
if ! cmp -s "$work/theirs" "$work/ours"; then
    diff "$work/theirs" "$work/ours" | head -20
    echo "the verdicts differ" >&2
    exit 1
fi
echo "same verdicts on $(wc -l < "$work/ours") histories of 200 operations:"
awk '{ count[$2]++ } END { for (verdict in count) print "  " verdict ": " count[verdict] }' "$work/ours" | sort

echo "operations  Porcupine (check alone)  ordinate-check (file to answer)"
for size in $sizes; do
    "$generate" porcupine "$size" 2 > "$work/large.json"
    theirs=$("$work/porcupine" "$work/large.json" | awk '{ print $2, $3 " s" }')
    ours=$("$check" --model linearizable --no-strongest -o json "$work/large.json" |
        sed 's/.*"verdict":"\([a-z]*\)".*"seconds":\([0-9.]*\)}/\1 \2 s/')
    printf '%10s  %23s  %s\n' "$size" "$theirs" "$ours"
done
