#!/usr/bin/env bash
# Rebuilds the five locks from the .in files in a temporary environment. $1: the Python.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${1:-python3}" -m venv "$folder/venv"
pip() { "$folder/venv/bin/pip" "$1" --disable-pip-version-check "${@:2}"; }
frozen() { pip freeze --all | grep -v '^pip==' | sed 's/+[a-z0-9.]*$//'; }
resolved() {
  "$folder/venv/bin/python" -c '
import json, sys
for item in json.load(open(sys.argv[1]))["install"]:
    print("{name}=={version}".format(**item["metadata"]))' "$1" | sed 's/+[a-z0-9.]*$//'
}
comments() { sed '/^[^#]/,$d' "$1"; }

pip install -q -r requirements.in
{
  comments requirements.lock
  frozen | grep -v -i -E '^(nvidia-(cu|nccl|nvjit|nvsh|nvtx)|triton|cuda-)'
} > "$folder/lock"
frozen | sort > "$folder/before"
# What Ray needs beside the lock, whether or not a peer needs it, too; others as they are pinned.
grep -v -e '--no-deps' requirements-cluster.in > "$folder/cluster.in"
pip install -q --dry-run --ignore-installed --report "$folder/cluster.json" -c "$folder/lock" -r "$folder/cluster.in"
{
  comments requirements-cluster.lock
  {
    resolved "$folder/cluster.json"
    sed -n 's/ *# --no-deps$//p' requirements-cluster.in
  } | sort | comm -13 "$folder/before" -
} > "$folder/cluster"
# The site's generator, beside the lock.
pip install -q --dry-run --ignore-installed --report "$folder/docs.json" -c "$folder/lock" -r requirements-docs.in
{
  comments requirements-docs.lock
  resolved "$folder/docs.json" | sort | comm -13 "$folder/before" -
} > "$folder/docs"
pip install -q -c "$folder/lock" -r requirements-peers.in
{
  comments requirements-peers.lock
  frozen | sort | comm -13 "$folder/before" -
} > "$folder/peers"
# The paper's versions are resolved, not installed: no other test of them is possible without its GPU.
replaced=$(sed -n 's/^\([A-Za-z0-9_-]*\)==.*/\1/p' requirements-paper.in | paste -sd '|')
{
  grep -v -i -E "^($replaced)([^a-z0-9_-]|$)" requirements.in
  cat requirements-paper.in
} > "$folder/paper.in"
pip install -q --dry-run --ignore-installed --report "$folder/report.json" -r "$folder/paper.in"
{
  comments requirements-paper.lock
  resolved "$folder/report.json" | sort -f |
    grep -v -i -E '^(nvidia-(cu|nccl|nvjit|nvsh|nvtx)|triton|cuda-)'
} > "$folder/paper"
mv "$folder/paper" requirements-paper.lock
mv "$folder/lock" requirements.lock
mv "$folder/peers" requirements-peers.lock
mv "$folder/cluster" requirements-cluster.lock
mv "$folder/docs" requirements-docs.lock
