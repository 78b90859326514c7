#!/usr/bin/env bash
# Makes requirements.lock anew from requirements.in, in a throw-away environment. $1: the Python.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${1:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check -r requirements.in
{
  sed '/^[^#]/,$d' requirements.lock
  "$folder/venv/bin/pip" freeze --all | grep -v '^pip==' | sed 's/+[a-z0-9.]*$//' |
    grep -v -i -E '^(nvidia-(cu|nccl|nvjit|nvsh|nvtx)|triton|cuda-)'
} > "$folder/lock"
mv "$folder/lock" requirements.lock
