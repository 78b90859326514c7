#!/usr/bin/env bash
# Measures a reference run on a machine with a GPU, in calls of LIMIT seconds. Each call leaves
# data/reference/<machine>/, which can be committed, as far as it came; the same command goes on.
# First the tests marked cuda, then cores, then the paper's experiments by value, then the others.
#
#   LIMIT   seconds that a call may take (default 540)
#   PROFILE quick (default: some 20 minutes on a GPU), or paper
#   PY      the Python to use (default .venv/bin/python), with torch
#   WHEELS  a folder of wheels, which are unpacked first, without a network, beside the records
#   RECORDS where records go until they are packed (default data/gpu-reference)
#   COPY    a folder that gets the reference too, as gpu-reference.tar.xz
#   CPU=1   try it without a GPU; what it leaves is RECORDS/reference
#   DRY=1   list the pieces and stop
set -uo pipefail
cd "$(dirname "$0")/.."
limit=${LIMIT:-540} profile=${PROFILE:-quick} py=${PY:-.venv/bin/python} out=${RECORDS:-data/gpu-reference}
steps="$out/steps"
mkdir -p "$steps"
export PYTHONPATH="$PWD/code:$PWD${PYTHONPATH:+:$PYTHONPATH}"

say() { printf 'gpu-reference: %s\n' "$*" >&2; }

# The seconds of this call, but for those in which it packs: as many as last time, and some more.
left() { echo $((limit - SECONDS - $(cat "$steps/pack-seconds" 2>/dev/null || echo 90) - 20)); }

# What was measured so far, as a reference.
pack() {
  local began=$SECONDS
  mkdir -p "$reference"
  if compgen -G "$out/data/runs/*/*/COMPLETE" >/dev/null; then
    "$py" -m paper check --pack "$out/data/runs" --reference "$reference" >"$steps/pack.out" 2>&1 ||
      say "packing failed: $(tail -n 1 "$steps/pack.out")"
  fi
  "$py" -m paper.gpu_reference readme --steps "$steps" --runs "$out/data/runs" --reference "$reference"
  [ -z "${COPY:-}" ] || tar -cJf "$COPY/gpu-reference.tar.xz" "$reference"
  echo $((SECONDS - began)) >"$steps/pack-seconds"
  say "$reference is as far as it came: commit it"
}

out_of_time() { say "$1; the same command goes on"; pack; exit 0; }

# Runs a command once. One that failed is not tried again by the next call, which would end in the
# same place for ever; it is named at the end, and the exit status says so. rm its .done to retry it.
# The same holds for one that a call's whole time does not suffice for, where it begins anew each
# time: $1 is `anew`, or `goes-on` where it keeps what it measured.
step() {
  local how=$1 name=$2 seconds status; shift 2
  [ -e "$steps/$name.done" ] && return 0
  seconds=$(left)
  [ "$seconds" -gt 10 ] || out_of_time "time is up before $name"
  say "$name ($seconds s left in this call)"
  timeout -s INT -k 15 "$seconds" "$@" >"$steps/$name.log" 2>&1
  status=$?
  case $status in
    124 | 130 | 137)
      [ "$how" = anew ] && [ "$seconds" -gt $((limit / 2)) ] || out_of_time "time is up in $name" ;;
  esac
  printf '%s\n' "$status" >"$steps/$name.done"
  [ $status = 0 ] || say "$name ended with status $status: $(tail -n 1 "$steps/$name.log")"
}

# An environment of the wheels over that of PY: installing into PY's own may be forbidden.
unpack_wheels() {
  local site
  "$py" -m venv --without-pip "$out/venv" &&
    site=$("$out/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') &&
    "$py" -c 'import sysconfig; print(*{sysconfig.get_path(name) for name in ("purelib", "platlib")}, sep="\n")' \
      >"$site/below.pth" &&
    "$py" -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$site" "$WHEELS"/*.whl
}

# Runs an experiment. $1: its name; $2: the step's; then further settings.
experiment() {
  local name=$1 label=$2; shift 2
  step goes-on "$label" "$py" code/main.py --experiment "$name" "profile=$profile" corpus=synthetic \
    "out=$out/data" "figures=$out/figures" "$@"
}

if [ -n "${WHEELS:-}" ]; then
  [ -x "$out/venv/bin/python" ] && [ -e "$steps/wheels.done" ] || {
    say "wheels"
    unpack_wheels >"$steps/wheels.log" 2>&1 || { say "wheels: $(tail -n 1 "$steps/wheels.log")"; exit 1; }
    echo 0 >"$steps/wheels.done"
  }
  py="$out/venv/bin/python"
fi
gpu=$("$py" -m paper.gpu_reference gpu) ||
  { say "this Python lacks packages of requirements/dev.lock; give their wheels: WHEELS=dir"; exit 1; }
order=$("$py" -m paper.gpu_reference order)
reference="data/reference/$("$py" -m paper.gpu_reference folder)"
[ -n "$gpu" ] || reference="$out/reference" # a try is no reference
tests=$(grep -rlE 'mark\.cuda|device: Device' tests --include='test_*.py' | sort)
if [ -n "${DRY:-}" ]; then
  [ -n "$gpu" ] || say "no NVIDIA GPU is here"
  printf '%s\n' $tests cores-ours cores $order cores-repeated
  exit 0
fi
[ -n "$gpu" ] || [ -n "${CPU:-}" ] || { say "no NVIDIA GPU is here; CPU=1 tries the pieces without"; exit 1; }
[ -n "$gpu" ] || say "no NVIDIA GPU is here: what needs one is skipped, or a row says so"

# What the loader decodes with; without it everything runs, on other decoders.
! command -v gcc >/dev/null || bash scripts/native.sh "$py"

# What an earlier machine of this kind has measured at this commit is not measured again.
[ -d "$out/data/runs" ] || [ ! -e "$reference/records.tar.xz" ] ||
  "$py" -m paper.gpu_reference restore --runs "$out/data/runs" --reference "$reference"

for path in $tests; do
  name=${path#tests/} name=${name%.py}
  step anew "cuda-${name//\//-}" "$py" -m pytest -q -m cuda -p no:cacheprovider "$path"
done
ours="experiment.cores.systems=[ours,embed-threads,embed-processes]"
experiment cores cores-ours repeats=1 loader_seconds=2 "$ours"
experiment cores cores repeats=1 loader_seconds=2
for name in $order; do
  experiment "$name" "$name"
done
experiment cores cores-repeated repeats=3 loader_seconds=2
pack
failed=$(cd "$steps" && grep -L -x 0 ./*.done | sed 's/^\.\///; s/\.done$//' | paste -sd ' ')
if [ -n "$failed" ]; then
  say "failed: $failed; their output is in $steps"
  exit 1
fi
say "done"
