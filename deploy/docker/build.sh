#!/bin/sh
# First stage: the Debian packages from the sources, on a bare Debian.
#   deploy/docker/build.sh OUTPUT_FOLDER
set -eu
output=$(readlink -m "$1")
cd "$(dirname "$(readlink -f "$0")")/../.."

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install --yes --no-install-recommends g++ cmake ninja-build pkgconf python3 dpkg-dev file \
  libgrpc++-dev protobuf-compiler-grpc protobuf-compiler libprotobuf-dev libabsl-dev prometheus-cpp-dev \
  libgloo-dev libhiredis-dev libcli11-dev libssl-dev nlohmann-json3-dev libgtest-dev libgmock-dev libbenchmark-dev

cmake --preset release
cmake --build build/release --target package_content
cpack -G DEB --config build/release/CPackConfig.cmake -B "$output"
rm -r "$output/_CPack_Packages"
