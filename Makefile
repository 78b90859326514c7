# wallclock. `make help` lists the targets; each sets up .venv first if it needs it; PY=python takes yours.
PYTHON ?= python3
ARGS ?=
PROFILE ?= paper
# .venv keeps its lock and its build of torch until others are given: LOCK=paper CUDA=128.
KEPT := $(shell cat .venv/.ready 2>/dev/null)
LOCK ?= $(or $(word 1,$(KEPT)),dev)
CUDA ?= $(word 2,$(KEPT))
LOCKED := requirements/$(LOCK).lock
# PY=python: an environment of yours, with the lock's packages; nothing is set up.
ifndef PY
PY := .venv/bin/python
READY := .venv/.ready .venv/.native
endif
# The suite runs from its checkout; only the product is installed.
export PYTHONPATH := $(CURDIR)/code:$(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
.DEFAULT_GOAL := help
# Every cell is a process of its own: without bytecode each would compile the package anew.
export PYTHONDONTWRITEBYTECODE :=
# The paper profile uses the paper's images and weights, the quick one generated images. What ARGS sets comes later and wins.
FLAGS := $(if $(filter quick,$(PROFILE)),--quick,--n 100000 corpus=abo model.weights=pretrained) --experiment all
# The paper's numbers of images: REPEATS=5 measures all of them, `make data` brings them in any case.
FULL := $(if $(filter quick,$(PROFILE)),,profile=long)
# MODEL is a folder if there is one of that name, else a model on the hub.
MODEL_IS = $(if $(MODEL),model=any model.$(if $(wildcard $(MODEL)/.),path,hub_id)=$(MODEL))
# Modules whose slow tests .ci/run has: what is killed, fails or fills up, and what a user installs or adds.
FAULTS := $(addprefix tests/,test_killing.py test_disk_full.py test_wheel.py test_contributing.py \
  harness/test_killed.py harness/corpora/abo/test_killed.py wallclock/loader/test_threads.py \
  $(addprefix wallclock/job/test_,killed.py runtime.py s3_out.py damaged.py) wallclock/service/test_service_faults.py)
.PHONY: help setup doctor quick data run figures diff report check all diagnose embed verify serve drift compare frontier ladder cluster gpu-reference setup-peers setup-cluster setup-docs docs native test regression test-faults test-slow test-install lint audit lock clean

##@ set-up

help: ## list the targets
	@awk 'sub(/^##@ /, "") {print "\n" $$0; next} /^[a-z-]+:.* ## / {split($$0, a, ":"); text = $$0; sub(/.* ## /, "", text); \
	  n = split(text, parts, " \\| "); printf "  make %-14s%s\n", a[1], parts[1]; \
	  if (n > 1) printf "%21s%s\n", "", parts[2]}' $(MAKEFILE_LIST)

setup: $(READY) ## .venv from the lock, the native module | LOCK=paper: the paper's versions; CUDA=128: torch for that CUDA; PYTHON=python3.11

ifdef READY
.venv/.ready: $(LOCKED) requirements/hashes.txt pyproject.toml scripts/setup.sh
	@bash scripts/setup.sh "$(PYTHON)" $(LOCKED) $(CUDA)
	@echo $(LOCK) $(CUDA) >$@

ifneq ($(strip $(LOCK) $(CUDA)),$(strip $(KEPT)))
.venv/.ready: FORCE
FORCE:
endif

.venv/.native: .venv/.ready $(wildcard code/wallclock/native/*.[ch])
	@bash scripts/native.sh $(PY)
	@touch $@
endif

setup-peers: $(READY) ## install the third-party loaders; changes no other package
	@bash scripts/setup-peers.sh

setup-cluster: $(READY) ## install Ray and Daft; changes no other package
	@bash scripts/install.sh requirements/cluster.lock
	@.venv/bin/python -c 'import ray.data, daft'

setup-docs: $(READY) ## install the generator of the site; changes no other package
	@bash scripts/install.sh requirements/docs.lock
	@.venv/bin/python -c 'import sphinx, myst_parser, furo'

##@ your images

diagnose: $(READY) ## where your job spends its time, what to fix | IMAGES=dir/ [MODEL=hub-id|dir/] [PROVE=1] [FOR=T4|L4|A100|H100|H200 [CORES=n] [USD=x]]
	@$(if $(IMAGES),,echo "make diagnose needs the folder with your images: make diagnose IMAGES=/path/to/images" >&2; exit 2)
	@$(PY) code/main.py --experiment diagnose corpus=folder "corpus.path=$(IMAGES)" $(MODEL_IS) \
	  $(if $(DEVICE),device=$(DEVICE)) $(if $(PROVE),experiment.diagnose.prove=true) \
	  $(if $(FOR),experiment.diagnose.accelerator=$(FOR)) $(if $(CORES),experiment.diagnose.accelerator_cores=$(CORES)) \
	  $(if $(USD),experiment.diagnose.accelerator_usd_per_hour=$(USD)) $(ARGS)

embed: $(READY) ## images to vectors, resumed after any kill | IMAGES=dir/|list.csv|s3://… OUT=dir/ [MODEL=hub-id|dir/] [ARGS="shard=5000"]
	@$(if $(and $(IMAGES),$(OUT)),,echo "make embed needs images and a folder: make embed IMAGES=/path/to/images OUT=/path/to/vectors" >&2; exit 2)
	@$(PY) -m wallclock embed "$(IMAGES)" "$(OUT)" $(if $(MODEL),"model=$(MODEL)") $(ARGS)

verify: $(READY) ## check every byte of OUT, and a sample by the model's own loop | OUT=dir/ [ARGS="n=64"]
	@$(if $(OUT),,echo "make verify needs the folder of vectors: make verify OUT=/path/to/vectors" >&2; exit 2)
	@$(PY) -m wallclock verify "$(OUT)" $(ARGS)

serve: $(READY) ## take image URLs from a queue, send results to callbacks | QUEUE=URL [MODULE=package.module:Class] [ARGS="batch=64"]
	@$(if $(QUEUE),,echo "make serve needs the queue's URL: make serve QUEUE=https://sqs.REGION.amazonaws.com/ACCOUNT/NAME" >&2; exit 2)
	@exec $(PY) -m wallclock serve "$(QUEUE)" $(if $(MODULE),"module=$(MODULE)") $(ARGS)

drift: $(READY) ## compare two folders of images (size, format, brightness) | A=old/ B=new/
	@$(if $(and $(A),$(B)),,echo "make drift compares two folders: make drift A=old/ B=new/" >&2; exit 2)
	@$(PY) -m paper.drift --a "$(A)" --b "$(B)" $(ARGS)

compare: $(READY) ## compare two files of vectors by id | A=old.parquet B=new.parquet [ARGS="--cosine-p1 0.99"]
	@$(if $(and $(A),$(B)),,echo "make compare compares two files of vectors: make compare A=old.parquet B=new.parquet" >&2; exit 2)
	@$(PY) -m paper.compare --a "$(A)" --b "$(B)" $(ARGS)

##@ the study

quick: $(READY) ## smoke test: tables, figures, verdicts in minutes on a CPU
	@$(PY) code/main.py --quick $(ARGS)

doctor: $(READY) ## what is installed, what a run would miss here, what to do | PROFILE=quick: of the quick run
	@$(PY) -m paper doctor --profile $(PROFILE)

all: doctor data run ## the complete paper: doctor, data, run | REPEATS=5: the long run; PROFILE=quick: few, generated images

data: $(READY) ## download the paper's images and weights | PROFILE=quick: generate images instead
	@$(PY) code/main.py $(FLAGS) $(FULL) only=data $(ARGS)

run: $(READY) ## run every experiment, then publish | REPEATS=5: the long run; ARGS="corpus=folder corpus.path=DIR"
	@$(PY) code/main.py $(FLAGS) $(if $(REPEATS),$(FULL) repeats=$(REPEATS)) $(ARGS)

figures: $(READY) ## rebuild tables, figures and verdicts from the records
	@$(PY) -m paper figures

diff: $(READY) ## compare with the paper's numbers | A=old/ B=new/ [TOLERANCE=0.25]: two folders of tables | ALL=1, SHORT=1
	@$(PY) -m paper diff $(if $(A),--a $(A)) $(if $(B),--b $(B)) $(if $(TOLERANCE),--tolerance $(TOLERANCE)) $(if $(ALL),--all) $(if $(SHORT),--short)

report: $(READY) ## rebuild figures/report.html from tables and figures
	@$(PY) -m paper report

check: $(READY) ## rebuild the reference runs, compare byte for byte
	@$(PY) -m paper check

frontier: $(READY) ## throughput against fidelity of every loader | IMAGES=dir/: also a folder of yours [REPEATS=7] [SYSTEMS=ours,pil]
	@$(PY) code/main.py --experiment frontier repeats=$(or $(REPEATS),3) $(if $(IMAGES),"experiment.frontier.folders=['$(IMAGES)']") \
	  $(if $(SYSTEMS),"experiment.frontier.systems=[$(SYSTEMS)]") $(ARGS)

ladder: $(READY) ## a queue-driven service, rung by rung | REPEATS=1: in half the time
	@$(PY) code/main.py --experiment ladder repeats=$(or $(REPEATS),3) $(ARGS)

cluster: $(READY) ## the same job on Ray Data, Daft and this suite | REPEATS=1: in half the time; after make setup-cluster
	@$(PY) code/main.py --experiment cluster repeats=$(or $(REPEATS),3) $(ARGS)

gpu-reference: $(READY) ## measure a machine with a GPU, in calls of nine minutes | LIMIT=540 [WHEELS=dir/ PY=python3] [COPY=dir/] [DRY=1]
	@bash scripts/gpu-reference.sh

##@ development

native: $(READY) ## compile the native module in the checkout
	@bash scripts/native.sh $(PY)

lint: $(READY) ## ruff, mypy --strict
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy

test: $(READY) ## fast tests
	@$(PY) -m pytest -n 2 --dist loadfile -m "not slow and not network"

regression: $(READY) ## six ratios of speed against data/regression.csv, in three minutes | ARGS=--record: add a run to it
	@$(PY) -m benchmarks.regression $(ARGS)

test-faults: $(READY) ## kills, faults, the wheel: the slow tests that .ci/run has
	@WALLCLOCK_KILLS=$${WALLCLOCK_KILLS:-5} $(PY) -m pytest -m "slow and not network" --timeout 1200 $(FAULTS)

test-install: $(READY) ## the wheel in new environments; needs the package index
	@$(PY) -m pytest -m network --timeout 1200

test-slow: $(READY) ## all tests that take minutes
	@$(PY) -m pytest -m "slow and not network" --timeout 1200

docs: $(if $(READY),setup-docs) ## the documents as a site: site/index.html
	@$(PY) -m sphinx -W --keep-going -n -q -c docs -d build/doctrees . site

audit: ## known vulnerabilities of what the lock pins; fails where one cannot be looked up
	@test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/pip install -q pip-audit; }
	@.venv-audit/bin/pip-audit --strict --disable-pip --no-deps -r $(LOCKED)

lock: ## rebuild requirements/ from the extras of pyproject.toml
	@bash scripts/lock.sh $(PYTHON)

clean: ## delete everything that a command regenerates
	@git clean -fdXq data docs/generated figures site && rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
