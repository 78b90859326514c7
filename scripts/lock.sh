#!/usr/bin/env bash
# Rebuilds requirements/*.lock from the extras of pyproject.toml, and hashes.txt. $1: the Python.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${1:-python3}" -m venv "$folder/venv"

# torch, what is built for that version of it, and Daft, which is installed without its dependencies:
# they limit pyarrow and tqdm to older versions than the lock's.
dev=(torch==2.13.0 'onnxruntime-gpu>=1.27')
peers=(torchvision==0.28.0 torchcodec==0.17.0)
daft=daft==0.7.26
# The paper's own versions; this ONNX Runtime is the last but one for CUDA 12.
paper=(torch==2.11.0 transformers==5.6.1 opencv-python-headless==4.13.0.92 onnxruntime-gpu==1.23.2)

# The versions that these arguments of `pip install` come to, one a line; nothing is installed.
resolved() {
  "$folder/venv/bin/pip" install -q --disable-pip-version-check --dry-run --ignore-installed \
    --report "$folder/report.json" "$@"
  "$folder/venv/bin/python" -c '
import json, sys
for item in json.load(open(sys.argv[1]))["install"]:
    print("{name}=={version}".format(**item["metadata"]))' "$folder/report.json" |
    sed 's/+[a-z0-9.]*$//' | grep -v '^wallclock' | sort -f
}
# torch pins the CUDA packages of its own build, so that one lock serves every build.
without_cuda() { grep -v -i -E '^(nvidia-(cu|nccl|nvjit|nvsh|nvtx)|triton|cuda-)'; }
# The same of an extra ($1), without what the environment of dev.lock has.
beside() { resolved -c "$folder/dev.lock" ".[$1]" "${@:2}" | grep -v -x -F -f "$folder/dev"; }
# Writes a lock ($1) that keeps the comment at its head.
write() {
  { sed '/^[^#]/,$d' "requirements/$1.lock" && cat; } > "$folder/new" && mv "$folder/new" "$folder/$1.lock"
}

resolved '.[dev]' "${dev[@]}" > "$folder/dev"
without_cuda < "$folder/dev" | write dev
beside peers "${peers[@]}" | write peers
beside docs | write docs
{ beside ray && echo "$daft"; } | sort -f | write cluster
resolved '.[dev]' "${paper[@]}" | without_cuda | write paper
mv "$folder"/*.lock requirements/
"$folder/venv/bin/python" scripts/hashes.py requirements/*.lock > "$folder/hashes"
mv "$folder/hashes" requirements/hashes.txt
