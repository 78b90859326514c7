#!/usr/bin/env bash
# Installs the third-party loaders of the frontier into .venv; changes no version of requirements/dev.lock.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup-peers: %s\n' "$*" >&2; }
pip() { .venv/bin/pip "$1" -q --disable-pip-version-check "${@:2}"; }

say "installing requirements/peers.lock into .venv (DALI is large)"
bash scripts/install.sh requirements/peers.lock
pip install --no-deps $(grep -E '^torch(vision|codec)==' requirements/peers.lock)

# These wheels fit one build of torch: the default index has those for CUDA, a torch without it takes
# those of its own index. One that does not load also breaks transformers.
loads() { .venv/bin/python -c "import $1" >/dev/null 2>&1; }
for name in torchvision torchcodec.decoders; do
  package=${name%%.*}
  loads "$name" && continue
  if .venv/bin/python -c 'import sys, torch; sys.exit(torch.version.cuda is not None)'; then
    pip install --no-deps --force-reinstall --index-url https://download.pytorch.org/whl/cpu \
      "$(grep "^$package==" requirements/peers.lock)" >/dev/null 2>&1 || true
  fi
  if ! loads "$name"; then
    pip uninstall -y "$package"
    say "no $package: its wheel does not load with this build of torch; its rows will say so"
  fi
done

has_ffmpeg() { .venv/bin/python -c 'import spdl.io; spdl.io.demux_config()' >/dev/null 2>&1; }
if ! has_ffmpeg && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  say "installing FFmpeg's libraries for SPDL"
  { apt-get install -y -qq --no-install-recommends ffmpeg ||
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends ffmpeg; }; } >/dev/null 2>&1 || true
fi
has_ffmpeg || say "no FFmpeg libraries that SPDL can use; its rows will say so. To have them: sudo apt-get install -y ffmpeg"
say "done"
