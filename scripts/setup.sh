#!/usr/bin/env bash
# Creates .venv from a lock and installs a compiler and libturbojpeg if it can. $1: the Python to use; $2: the lock.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3} lock=${2:-requirements/dev.lock}

say() { printf '%s\n' "$*" >&2; }

command -v "$python" >/dev/null || { say "setup: no $python here: sudo apt-get install -y python3 python3-venv"; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { say "setup: $("$python" --version) is too old; make setup PYTHON=/path/to/python3.11 (or newer)"; exit 1; }

[ -x .venv/bin/pip ] || "$python" -m venv .venv >/dev/null ||
  { rm -rf .venv; say "setup: this Python cannot create a virtual environment: sudo apt-get install -y python3-venv"; exit 1; }

say "setup: installing $lock into .venv (minutes the first time)"
bash scripts/install.sh "$lock"
# By its pin alone, from the index that has the build for this machine; what all builds need is there.
torch=$(grep '^torch==' "$lock")
.venv/bin/pip install -q --disable-pip-version-check -c "$lock" "$torch"
installed=$(.venv/bin/python -c 'from importlib.metadata import version; print("torch==" + version("torch").partition("+")[0])')
[ "$installed" = "$torch" ] || { say "setup: $installed is installed, $lock has $torch"; exit 1; }

# Installs packages of Debian's, the first name that it knows, where this may be done.
install() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
  say "setup: installing $*"
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
# Debian calls it libturbojpeg0, Ubuntu libturbojpeg.
has_turbojpeg || install libturbojpeg0 libturbojpeg
if has_turbojpeg; then
  say "setup: done"
else
  say "setup: done, but without libturbojpeg: rows of decoder=turbojpeg will be unavailable. To install it:"
  say "  $(PYTHONPATH=code .venv/bin/python -c 'from harness import native; print(native.INSTALL_HINT)')"
fi
