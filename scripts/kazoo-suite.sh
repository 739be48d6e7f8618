#!/usr/bin/env bash
# Runs kazoo's own test suite against three hosts of Ordinate.
# Usage: scripts/kazoo-suite.sh [mason|paxos|fuzzylog|fuzzylog-1] [pytest arguments]; fuzzylog-1 has one shard.
# ORDINATE_BINARY: the server to test (target/release/ordinate). ORDINATE_KAZOO_ONLY: a pattern of test names.
set -euo pipefail
cd "$(dirname "$0")/.."
engine=${1:-mason}
shift || true
scripts/clients.sh python
case $engine in
  mason) export ORDINATE_COORDINATION=$'engine = "mason"\nshards = 4' ;;
  paxos) export ORDINATE_COORDINATION='engine = "paxos"' ;;
  fuzzylog) export ORDINATE_COORDINATION=$'engine = "fuzzylog"\nshards = 4' ;;
  fuzzylog-1) export ORDINATE_COORDINATION=$'engine = "fuzzylog"\nshards = 1' ;;
  *) echo "no engine $engine: mason, paxos, fuzzylog or fuzzylog-1" >&2; exit 2 ;;
esac
export ORDINATE_BINARY=${ORDINATE_BINARY:-${CARGO_TARGET_DIR:-target}/release/ordinate}
export PYTHONPATH=cli/tests/clients/kazoo PYTHONDONTWRITEBYTECODE=1
exec "${ORDINATE_PEERS:-target/clients}/venv/bin/python" -m pytest -p ordinate_cluster -p no:cacheprovider \
  --timeout 120 --rootdir cli/tests/clients/kazoo -q -rfEs --tb=short "$@" --pyargs kazoo.tests
