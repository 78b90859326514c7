#!/usr/bin/env bash
# Compiles the native module in the checkout, or says in one line what is missing. $1: the Python.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 folder=code/wallclock/native module=code/wallclock/native/_native.abi3.so
log=build/native.log

if [ ! -e $module ] || [ -n "$(find $folder/*.[ch] pyproject.toml -newer $module)" ]; then
  mkdir -p build
  rm -f $module
  "$python" -c 'from setuptools import setup; setup()' build_ext --inplace >$log 2>&1 || true
  [ -e $module ] || grep -m 1 -E 'error:|failed:' $log | cut -c 1-200 >&2 || true
fi
PYTHONPATH=code "$python" -c 'from wallclock import native; print("native module:", native.described())' >&2
