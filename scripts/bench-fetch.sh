#!/usr/bin/env bash
# What `make bench-fetch` needs beyond the project's own environment: nginx, and awscli in .venv-bench.
# $1: the Python to build with; the rest goes to the benchmark.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
shift || true

say() { printf 'bench-fetch: %s\n' "$*" >&2; }

has_nginx() { PATH=$PATH:/usr/sbin:/usr/local/sbin command -v nginx >/dev/null; }
if ! has_nginx && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  say "installing nginx"
  # Runlevel 1 keeps Debian from starting it as a service.
  export RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive
  { apt-get install -y -qq --no-install-recommends nginx ||
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends nginx; }; } >/dev/null 2>&1 || true
fi
has_nginx || { say "no nginx here: sudo apt-get install -y nginx"; exit 1; }

if ! [ .venv-bench/.ready -nt benchmarks/requirements.txt ]; then
  say "installing awscli into .venv-bench"
  rm -rf .venv-bench
  "$python" -m venv .venv-bench
  .venv-bench/bin/pip install -q --disable-pip-version-check -r benchmarks/requirements.txt
  touch .venv-bench/.ready
fi
exec .venv/bin/python -m benchmarks.fetch "$@"
