#!/usr/bin/env bash
# Creates .venv from a lock and brings a compiler and libturbojpeg if it can. $1: the Python to use; $2: the lock;
# $3: the build of torch, as download.pytorch.org/whl names it: cu128 (or 128), cpu; empty: the index's own.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3} lock=${2:-requirements/dev.lock} build=${3:-}

say() { printf 'setup: %s\n' "$*" >&2; }

# An environment that is there is used as it is: `uv venv --seed` makes one without root.
if [ ! -x .venv/bin/pip ]; then
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null &&
    "$python" -m venv .venv >/dev/null; then :; else
    rm -rf .venv
    version=$("$python" --version 2>/dev/null) || version="no $python"
    say "Python 3.11 or newer with venv is needed; here: $version. Without root, one of"
    say "  make setup PYTHON=/path/to/python3.11"
    say "  curl -LsSf https://astral.sh/uv/install.sh | sh; uv venv --seed --python 3.12 .venv; make setup"
    say "  conda env create -f environment.yml; conda activate wallclock; then add PY=python to make"
    exit 1
  fi
  free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1048576) }')
  [ "$free" -ge 8 ] ||
    say "$free GB are free; with CUDA's libraries .venv takes 6.2 GB (PIP_NO_CACHE_DIR=1 spares a copy, CUDA=cpu leaves them out)"
fi

kept=$(cut -s -d' ' -f2 .venv/.ready 2>/dev/null || true)
rm -f .venv/.ready # not ready until the end
say "installing $lock into .venv (minutes the first time)"
bash scripts/install.sh "$lock"
# By its pin alone, from the index that has the build for this machine; what all builds need is there.
torch=$(grep '^torch==' "$lock") index=()
[ -z "$kept" ] || [ "$kept" = "$build" ] || .venv/bin/pip uninstall -q -y torch
if [ -n "$build" ]; then
  [ "$build" = cpu ] || build=cu${build#cu}
  torch+=+$build index=(--extra-index-url "https://download.pytorch.org/whl/$build")
fi
.venv/bin/pip install -q --disable-pip-version-check -c "$lock" ${index[@]+"${index[@]}"} "$torch"
installed=$(.venv/bin/python -c 'from importlib.metadata import version; print("torch==" + version("torch").partition("+")[0])')
[ "$installed" = "${torch%+*}" ] || { say "$installed is installed, $lock has ${torch%+*}"; exit 1; }

# Installs packages of Debian's, the first name that it knows, where this may be done.
install() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
  say "installing $*"
  for name in "$@"; do
    { apt-get install -y -qq $name || { apt-get update -qq && apt-get install -y -qq $name; }; } >/dev/null 2>&1 && return
  done || true
}
can_compile() {
  command -v gcc >/dev/null &&
    .venv/bin/python -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
}
can_compile || install "gcc libc6-dev python3-dev"
.venv/bin/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .

has_turbojpeg() { PYTHONPATH=code .venv/bin/python -c 'import sys; from harness import native; sys.exit(native.find_libturbojpeg() is None)'; }
# Without root the package is unpacked, and the library put where it is looked for first.
unpack_turbojpeg() {
  local folder lib=$PWD/.venv/lib
  folder=$(mktemp -d)
  (
    cd "$folder"
    apt-get download -qq "$1" && dpkg-deb -x ./*.deb . && cp -P usr/lib/*/libturbojpeg.so.0* "$lib"
  ) >/dev/null 2>&1 || true
  rm -rf "$folder"
}
# Debian calls it libturbojpeg0, Ubuntu libturbojpeg.
has_turbojpeg || install libturbojpeg0 libturbojpeg
for name in libturbojpeg0 libturbojpeg; do
  has_turbojpeg || unpack_turbojpeg $name
done
has_turbojpeg || say "no libturbojpeg was found; \`make doctor\` says what it is for and how to get it"
say "done"
