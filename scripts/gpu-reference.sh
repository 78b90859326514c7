#!/usr/bin/env bash
# Measures a reference run on a machine with a GPU: the tests marked cuda, every experiment, and the
# folder to commit. It works for LIMIT seconds; the same command goes on where it stopped.
#
#   LIMIT   seconds a call may take (default 540)
#   PROFILE quick (default: some 20 minutes on a GPU), or paper
#   PY      the Python to use (default .venv/bin/python)
#   WHEELS  a folder of wheels, all of which are installed first, without a network
#   OUT     where records go until they are packed (default data/gpu-reference)
set -uo pipefail
cd "$(dirname "$0")/.."
limit=${LIMIT:-540} profile=${PROFILE:-quick} py=${PY:-.venv/bin/python} out=${OUT:-data/gpu-reference}
steps="$out/steps"
mkdir -p "$steps"
export PYTHONPATH="$PWD/code:$PWD${PYTHONPATH:+:$PYTHONPATH}"

say() { printf 'gpu-reference: %s\n' "$*" >&2; }
left() { echo $((limit - SECONDS)); }

# Runs a command once. A step that failed is not tried again by the next call, which would end in the
# same place for ever; it is named at the end, and the exit status says so. rm its .done to retry it.
step() {
  local name=$1; shift
  [ -e "$steps/$name.done" ] && return 0
  [ "$(left)" -gt 5 ] || { say "time is up before $name; the same command goes on"; exit 0; }
  say "$name ($(left) s left in this call)"
  timeout -s INT -k 30 "$(left)" "$@" >"$steps/$name.log" 2>&1
  local status=$?
  if [ $status = 124 ] || [ $status = 130 ] || [ $status = 137 ]; then
    say "time is up in $name; the same command goes on"
    exit 0
  fi
  printf '%s\n' "$status" >"$steps/$name.done"
  [ $status = 0 ] || say "$name ended with status $status: $(tail -n 1 "$steps/$name.log")"
}

if [ -n "${WHEELS:-}" ]; then
  step wheels "$py" -m pip install -q --no-index --no-deps "$WHEELS"/*.whl
fi
step cuda-tests "$py" -m pytest -q -m cuda -p no:cacheprovider
for name in $("$py" -c 'import experiments; print(*experiments.ORDER)'); do
  step "$name" "$py" code/main.py --experiment "$name" "profile=$profile" corpus=synthetic \
    "out=$out/data" "figures=$out/figures"
done
name=$("$py" - <<'PYTHON'
import re

from harness import provenance

machine = provenance.machine()
parts = [*(gpu["name"] for gpu in machine["gpus"][:1]), machine["cpu"], f"{machine['cores']} cores"]
print(re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-"))
PYTHON
)
step pack "$py" -m paper check --pack "$out/data/runs" --reference "data/reference/$name"

echo "tests marked cuda:"
grep -h -E '^(SKIPPED|FAILED)|(passed|skipped|failed).* in ' "$steps/cuda-tests.log" | sed 's/^/  /'
"$py" - "$out/data/runs" <<'PYTHON'
import sys
from pathlib import Path

import experiments
from harness import records

print("cells without a measurement:")
for name in experiments.ORDER:
    cells = records.load_experiment(Path(sys.argv[1]), name)
    reasons = {f"  {name}/{one.cell.label}: {one.status}: {one.reason}" for one in cells if not one.ok}
    print("\n".join(sorted(reasons)) or f"  {name}: none of {len(cells)}")
PYTHON
failed=$(cd "$steps" && grep -L -x 0 ./*.done | sed 's/^\.\///; s/\.done$//' | paste -sd ' ')
if [ -n "$failed" ]; then
  say "failed: $failed; their output is in $steps"
  exit 1
fi
say "done: commit data/reference/$name"
