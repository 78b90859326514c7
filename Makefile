# wallclock. `make help` lists the targets; each does its own set-up.
PYTHON ?= python3
ARGS ?=
PY := .venv/bin/python
READY := .venv/.ready
.DEFAULT_GOAL := help
PROFILE ?= paper
# The paper's images in the paper's profile, generated ones in the quick one. Of two corpus= the later counts.
FLAGS := $(if $(filter quick,$(PROFILE)),--quick,corpus=abo) --experiment all $(ARGS)
# A folder is a folder, anything else the name of a model on the hub.
MODEL_IS = $(if $(MODEL),model=any model.$(if $(wildcard $(MODEL)/.),path,hub_id)=$(MODEL))
.PHONY: help setup setup-peers quick all data run frontier diagnose drift figures diff report check whatif test test-slow lint lock clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(READY) ## .venv from requirements.lock, and libturbojpeg; costs nothing the second time

$(READY): requirements.lock pyproject.toml scripts/setup.sh
	@bash scripts/setup.sh $(PYTHON)
	@touch $@

setup-peers: $(READY) ## DALI, SPDL, imagecodecs, kornia-rs, pyvips for `make frontier`; moves no other package
	@bash scripts/setup-peers.sh

frontier: $(READY) ## every loader's speed against its pixels; IMAGES=DIR takes a folder of yours into the same run
	@$(PY) code/main.py --experiment frontier $(if $(IMAGES),"experiment.frontier.folder='$(IMAGES)'") $(ARGS)

quick: $(READY) ## the smoke test: minutes on a CPU; tables, figures, verdicts
	@$(PY) code/main.py --quick $(ARGS)

all: data run ## the whole paper: corpus, every experiment, tables, figures, verdicts, report; PROFILE=quick for less

data: $(READY) ## the corpus that the experiments need, onto this disk: the paper's from S3; ARGS=corpus=synthetic or PROFILE=quick needs no network
	@$(PY) code/main.py $(FLAGS) only=data

run: $(READY) ## every experiment and all that follows from it; ARGS="corpus=folder corpus.path=DIR" and the like
	@$(PY) code/main.py $(FLAGS)

diagnose: $(READY) ## your own job: make diagnose IMAGES=dir [MODEL=hub-id-or-folder] [DEVICE=cpu|cuda] [PROVE=1]
	@$(if $(IMAGES),,echo "make diagnose needs the folder with your images: make diagnose IMAGES=/path/to/images" >&2; exit 2)
	@$(PY) code/main.py --experiment diagnose corpus=folder "corpus.path=$(IMAGES)" $(MODEL_IS) \
	  $(if $(DEVICE),device=$(DEVICE)) $(if $(PROVE),experiment.diagnose.prove=true) $(ARGS)

drift: $(READY) ## have the images changed? make drift A=dir B=dir: size, pixels, format, brightness; data/drift.csv
	@$(if $(and $(A),$(B)),,echo "make drift compares two folders: make drift A=/as/it/was B=/as/it/is" >&2; exit 2)
	@$(PY) -m wallclock.drift --a "$(A)" --b "$(B)" $(ARGS)

figures: $(READY) ## CSVs, figures and verdicts again, from the records alone
	@$(PY) -m wallclock.paper figures

diff: $(READY) ## verdicts against the paper; or two folders: make diff A=dir B=dir
	@$(PY) -m wallclock.paper diff $(if $(A),--a $(A)) $(if $(B),--b $(B)) $(if $(TOLERANCE),--tolerance $(TOLERANCE))

report: $(READY) ## figures/report.html from the tables and figures that are there
	@$(PY) -m wallclock.paper report

check: $(READY) ## rebuild everything from each committed reference run and compare byte for byte
	@$(PY) -m wallclock.paper check

whatif: $(READY) ## twice the cores, an H100, slow storage: predicted from a run's tables; ARGS="--cores 32 --image-mb 5"
	@$(PY) -m wallclock.paper whatif $(ARGS)

test: $(READY) ## the fast tests
	@$(PY) -m pytest -n 2 --dist loadfile -m "not slow and not network"

test-slow: $(READY) ## the tests that take minutes
	@$(PY) -m pytest -m "slow and not network" --timeout 1200

lint: $(READY) ## ruff and mypy --strict
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy

lock: ## requirements.lock anew, from requirements.in
	@bash scripts/lock.sh $(PYTHON)

clean: ## all that a command regenerates: tables, figures, records, corpora, caches
	@git clean -fdXq data figures && rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
