#!/bin/sh
# Installs what the tests of real processes use beyond Rust, at the versions of Debian 12. Needs root.
set -eu
apt-get update
apt-get install --yes --no-install-recommends gcc=4:12.2.0-3 libc6-dev iproute2=6.1.0-3 nftables util-linux procps
# promtool reads what hosts export. The Debian package also starts a server of its own, which is not wanted.
apt-get install --yes --no-install-recommends prometheus=2.42.0+ds-5+deb12u1
if command -v systemctl > /dev/null; then systemctl disable --now prometheus > /dev/null 2>&1 || true; fi
# A browser sends what no hand-written request does: headless, for pages of other origins. Debian drops a version of it when it mends one.
browser=156.0.8078.108-1~deb12u1
install() { apt-get install --yes --no-install-recommends "$@"; }
if ! install chromium=$browser chromium-common=$browser curl; then
  echo "Debian has no Chromium $browser any more: the one that it has now" >&2
  install chromium curl
fi
