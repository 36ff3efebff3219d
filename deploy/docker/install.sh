#!/bin/sh
# Second stage: daemon and command line out of their packages, for a user whose number is always the same.
#   deploy/docker/install.sh PACKAGE_FOLDER
set -eu
packages=$(readlink -f "$1")

groupadd --system --gid 9767 gradgate
useradd --system --uid 9767 --gid gradgate --no-create-home --home-dir /var/lib/gradgate --shell /usr/sbin/nologin gradgate
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install --yes --no-install-recommends "$packages"/gradgated_*.deb "$packages"/gradgatectl_*.deb
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log
install --directory --owner=gradgate --group=gradgate /run/gradgate /var/lib/gradgate
