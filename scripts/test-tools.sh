#!/bin/sh
# Installs what the tests of real processes use beyond Rust, at the versions of Debian 12. Needs root.
set -eu
apt-get update
apt-get install --yes --no-install-recommends gcc=4:12.2.0-3 libc6-dev iproute2=6.1.0-3 nftables util-linux procps
