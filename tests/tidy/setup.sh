# shellcheck shell=bash
# What ./dev needs of Debian, and how it comes there. Read by ./dev, whose run and die it uses.

# Debian names; the same on 12 and 13.
packages=(g++ cmake ninja-build ccache pkgconf git dpkg-dev file python3 python3-venv python3-dev shellcheck valgrind
  clang clang-format clang-tidy libclang-rt-dev
  libgrpc++-dev protobuf-compiler-grpc protobuf-compiler libprotobuf-dev libabsl-dev prometheus-cpp-dev
  libgloo-dev libhiredis-dev libcli11-dev libssl-dev nlohmann-json3-dev libgtest-dev libgmock-dev libbenchmark-dev etcd-client
  chromium-headless-shell)

# take PROGRAM PACKAGE: into .cache/bin, out of a package that would start a server if it were installed.
take() {
  command -v "$1" >/dev/null || run bash -o pipefail -c "mkdir --parents .cache/bin && cd .cache && apt-get download $2 &&
    dpkg-deb --fsys-tarfile $2_*.deb | tar --extract --directory=bin --strip-components=3 ./usr/bin/$1 && rm $2_*.deb"
}

# Debian 12 has promtool only in the package prometheus. The server is for the tests of dashboards.
install() {
  run "${apt[@]}" update || echo 'setup: not all package lists came; trying with those that did'
  if ! command -v promtool >/dev/null && apt-cache show promtool &>/dev/null; then set -- "$@" promtool; fi
  (($# == 0)) || run "${apt[@]}" install --no-install-recommends "$@" || return
  take promtool prometheus && take prometheus prometheus && take etcd etcd-server
}

ensure_setup() {
  local missing apt=(env DEBIAN_FRONTEND=noninteractive apt-get --yes --option=DPkg::Lock::Timeout=300 --option=Acquire::Retries=3)
  command -v dpkg-query >/dev/null || { echo "setup: not a Debian; needs what Debian calls: ${packages[*]}" && return; }
  mapfile -t missing < <(comm -13 <(dpkg-query --show --showformat='${Status} ${Package}\n' "${packages[@]}" 2>/dev/null |
    sed --quiet 's/^.* ok installed //p' | sort --unique) <(printf '%s\n' "${packages[@]}" | sort --unique))
  ((${#missing[@]} == 0)) && command -v promtool >/dev/null && command -v prometheus >/dev/null &&
    command -v etcd >/dev/null && return
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "neither root nor sudo: ask an administrator to install: ${missing[*]:-promtool and etcd}"
    echo "setup: installs through sudo: ${missing[*]:-promtool and etcd}"
    apt=(sudo "${apt[@]}")
  fi
  install "${missing[@]}" || { echo 'setup: failed, one more try' && install "${missing[@]}"; } ||
    die "apt-get could not install: ${missing[*]:-promtool and etcd}; its output above says why"
}
