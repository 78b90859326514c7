#!/usr/bin/env bash
# Installs exactly what a lock ($1) pins into .venv, each file checked against requirements/hashes.txt. torch and what is
# built for it have none there, since their build differs between machines: they are not installed here.
set -euo pipefail
cd "$(dirname "$0")/.."
awk 'NR == FNR { line[$1] = $0; next } /==/ && !/^torch(vision|codec)?==/ { print $1 in line ? line[$1] : $1 }' \
  requirements/hashes.txt "$1" |
  .venv/bin/pip install -q --disable-pip-version-check --no-deps --require-hashes -r /dev/stdin
