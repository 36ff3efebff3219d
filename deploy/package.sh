#!/usr/bin/env bash
# All packages, from a release build: Debian's by component, Python's source distribution, and the wheel that is built from it alone.
#   deploy/package.sh BUILD_FOLDER OUTPUT_FOLDER
set -o errexit -o nounset -o pipefail
build=$(readlink --canonicalize-existing "$1") output=$(readlink --canonicalize-missing "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools=.cache/python-build

rm --recursive --force "$output"
mkdir --parents "$output"
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$output"
rm --recursive "$output/_CPack_Packages"

# Debian 12's own build cannot isolate without its virtualenv; this one needs the standard library's venv alone.
[[ -x $tools/bin/pyproject-build ]] || python3 -m venv "$tools"
"$tools/bin/pip" install --quiet --quiet --disable-pip-version-check build==1.6.1
"$tools/bin/pyproject-build" --outdir "$output" shim/python >"$output/python.log" 2>&1 || { cat "$output/python.log" && exit 1; }
rm "$output/python.log"

find "$output" -type f -printf '%9s  %f\n' | sort --key=2
