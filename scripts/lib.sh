# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# lib.sh: what the scripts of this folder share. Sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
me=${0##*/}

# Everything that is fetched or kept between runs lies here: peer/, kernels/, reference/, logs/.
work=${BTFCACHE_WORK:-${XDG_CACHE_HOME:-$HOME/.cache}/btfcache-dev}
# The program under test; BTFCACHE names another one (a wrapper, an older build).
btfcache=${BTFCACHE:-${CARGO_TARGET_DIR:-$root/target}/release/btfcache}

# What is measured and compared here is the encoder: a cache would answer for it.
export BTFCACHE_DISABLE=1

say() { printf '%s\n' "$me: $*" >&2; }
die() { say "$@"; exit 2; }

# step TITLE COMMAND...: announce, run, tell the time. With `announce_failure` a failing step is named.
step() {
  current_step=$1
  local start=$SECONDS
  shift
  printf '\n==> %s\n' "$current_step"
  "$@"
  printf '    (%s: %d s)\n' "$current_step" $((SECONDS - start))
  current_step=
}
announce_failure() {
  trap 'status=$?; [ $status = 0 ] || say "FAILED with status $status${current_step:+ in step: $current_step}"' EXIT
}

have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif have sudo; then sudo "$@"
  else die "needs root or sudo for: $*"
  fi
}

need_apt() {
  { have apt-get && have dpkg-deb; } || die "$1 needs a Debian machine (apt-get, dpkg-deb)"
}

# need_packages NAME...: install the Debian packages that are missing. Elsewhere say so and go on.
need_packages() {
  local name missing=()
  if ! have apt-get || ! have dpkg-query; then
    say "not a Debian machine: install yourself what corresponds to: $*"
    return
  fi
  for name; do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  as_root apt-get -qq update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 install -y \
    --no-install-recommends "${missing[@]}" </dev/null >/dev/null
}

# need_rust: a cargo of at least Cargo.toml's rust-version, with rustfmt and clippy.
need_rust() {
  local wanted found
  wanted=$(awk -F'"' '/^rust-version *= *"/ {print $2; exit}' "$root/Cargo.toml")
  have cargo || PATH=$HOME/.cargo/bin:$PATH
  if ! have cargo && have apt-cache && [ -n "$(apt-cache search --names-only '^rustup$')" ]; then
    need_packages rustup
  fi
  if have rustup && ! cargo --version >/dev/null 2>&1; then
    rustup toolchain install stable --profile minimal --component rustfmt --component clippy
    rustup default stable
  fi
  have cargo || die "no cargo: install Rust $wanted or newer (rustup, or a recent Debian's cargo, rustfmt, rust-clippy)"
  found=$(cd "$root" && cargo --version | awk '{print $2}')
  [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -1)" = "$wanted" ] ||
    die "cargo $found is too old: Rust $wanted or newer is needed (rustup update stable)"
  for tool in fmt clippy; do
    (cd "$root" && cargo $tool --version) >/dev/null 2>&1 && continue
    have rustup || die "cargo $tool is missing: install rustfmt and rust-clippy"
    (cd "$root" && rustup component add rustfmt clippy)
  done
}

# private_apt TOOL SUITE DIR ARGS...: apt-get or apt-cache with package lists of its own under DIR; needs no root and
# leaves this system's lists and packages alone. SUITE is a Debian suite, or - for the sources of this machine.
private_apt() {
  local tool=$1 suite=$2 dir=$3
  shift 3
  local opt=(-qq -o "Dir::State::Lists=$dir/lists" -o "Dir::Cache::archives=$dir/archives" -o Dir::State::status=/dev/null
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Debug::NoLocking=1 -o APT::Sandbox::User=root
    -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=0)
  mkdir -p "$dir/lists/partial" "$dir/archives/partial"
  if [ "$suite" != - ]; then
    debian_source "$suite" >"$dir/sources.list"
    opt+=(-o "Dir::Etc::sourcelist=$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null)
  fi
  "$tool" "${opt[@]}" "$@"
}

# debian_source SUITE: a sources.list line for SUITE on the mirror that this machine already uses.
debian_source() {
  local mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg signed=
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
    awk '/\/debian\/?$/ {print; found = 1; exit} !first {first = $0} END {if (!found) print first}')
  [ -n "$mirror" ] || die "apt's sources on this machine name no Debian mirror"
  [ ! -e "$keyring" ] || signed="[signed-by=$keyring] "
  echo "deb $signed$mirror $1 main"
}

# have_peer: sets `pahole` and `bpftool`; says so when the reference is not the release that we follow.
have_peer() {
  "$root/scripts/peer" "$work/peer" >/dev/null
  pahole=$work/peer/bin/pahole bpftool=$work/peer/bin/bpftool
  [ "$("$pahole" --version)" = v1.32 ] || say "warning: the reference is pahole 1.32, this one is $("$pahole" --version)"
}

# have_kernel NAME: sets `vmlinux`, `modules`, `package` and the array `flags` of that kernel.
have_kernel() {
  local lines
  mapfile -t lines < <("$root/scripts/kernel" "$1" "$work/kernels")
  [ ${#lines[@]} = 3 ] || die "no kernel $1"
  vmlinux=${lines[0]} modules=${lines[1]} package=${lines[2]}
  mapfile -t flags < <("$root/scripts/kernel" --flags "$1")
}
