#!/usr/bin/env bash
# Installs the generator of the site into .venv; changes no version of requirements.lock.
set -euo pipefail
cd "$(dirname "$0")/.."

printf 'setup-docs: installing requirements-docs.lock into .venv\n' >&2
.venv/bin/pip install -q --disable-pip-version-check --no-deps -c requirements.lock -r requirements-docs.lock
.venv/bin/python -c 'import sphinx, myst_parser, furo'
