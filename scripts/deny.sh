#!/bin/sh
# Checks dependencies by deny.toml: scripts/deny.sh [check arguments]. Installs the checker once, which takes minutes.
# Advisories are fetched from github.com; where that cannot be reached: scripts/deny.sh licenses bans sources
set -eu
version=0.20.2
root=$(cd "$(dirname "$0")/.." && pwd)
tools=${CARGO_TARGET_DIR:-$root/target}/tools
if ! "$tools/bin/cargo-deny" --version 2>/dev/null | grep -qx "cargo-deny $version"; then
    cargo install cargo-deny --version "=$version" --locked --root "$tools"
fi
cd "$root"
exec "$tools/bin/cargo-deny" check "$@"
