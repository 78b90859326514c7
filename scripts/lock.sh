#!/usr/bin/env bash
# Rebuilds requirements.lock and requirements-peers.lock from the .in files in a temporary environment. $1: the Python.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${1:-python3}" -m venv "$folder/venv"
pip() { "$folder/venv/bin/pip" "$1" --disable-pip-version-check "${@:2}"; }
frozen() { pip freeze --all | grep -v '^pip==' | sed 's/+[a-z0-9.]*$//'; }
comments() { sed '/^[^#]/,$d' "$1"; }

pip install -q -r requirements.in
{
  comments requirements.lock
  frozen | grep -v -i -E '^(nvidia-(cu|nccl|nvjit|nvsh|nvtx)|triton|cuda-)'
} > "$folder/lock"
frozen | sort > "$folder/before"
pip install -q -c "$folder/lock" -r requirements-peers.in
{
  comments requirements-peers.lock
  frozen | sort | comm -13 "$folder/before" -
} > "$folder/peers"
mv "$folder/lock" requirements.lock
mv "$folder/peers" requirements-peers.lock
