#!/usr/bin/env bash
# Installs Ray for `wallclock embed … cluster=`, and Daft to compare with, into .venv; changes no version of requirements.lock.
set -euo pipefail
cd "$(dirname "$0")/.."

printf 'setup-cluster: installing requirements-cluster.lock into .venv\n' >&2
.venv/bin/pip install -q --disable-pip-version-check --no-deps -c requirements.lock -r requirements-cluster.lock
.venv/bin/python -c 'import ray.data, daft'
