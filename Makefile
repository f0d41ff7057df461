# make run   set up, fetch the default model, execute every notebook with its quick profile, two at a time
# make run-larger  the same for 01, 03, 06 and 07 on a model of 1.5 billion parameters (see README)
# make test  set up, then lint, types, quick unit tests and regression tests of three notebooks
# make test-all  the same with every unit test and every notebook, as CI does
# make book  a site to read: notebooks, result tables, API reference, in runs/book/html
#
# On a machine with a GPU:  make run TORCH=torch===2.13.0
# (three equals signs: also replaces a CPU build that is already there)
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TORCH_VERSION := 2.13.0
ifeq ($(shell uname -s),Darwin)
TORCH ?= torch==$(TORCH_VERSION)
else
TORCH ?= torch==$(TORCH_VERSION)+cpu
endif
CPU_INDEX := https://download.pytorch.org/whl/cpu
PIP_INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
# Quick profiles, the longest first. 10 needs none of the statistics that 06 makes for the others.
QUICK := $(foreach number,10 06 02 08 03 07 04 05 01 09,$(wildcard params/quick/$(number)_*.yaml))
WORKERS ?= 2
# Whose outputs `make test` compares: one of each paper, the longest first.
CHECKED := $(foreach number,06 05 01,$(wildcard notebooks/$(number)_*.ipynb))
# One stamp per torch build, so that asking for another build sets up again.
READY := $(VENV)/.ready-$(subst =,,$(TORCH))
# Notebook kernels and tests run quietly and the same everywhere.
export TQDM_DISABLE := 1
export TOKENIZERS_PARALLELISM := false
# Idle threads sleep: spinning ones starve whatever else runs on these cores.
export OMP_WAIT_POLICY ?= passive

.PHONY: setup run run-larger test test-all lint book clean

setup: $(READY)

# torch first and by itself: installed along with the rest, the newest build would bring CUDA.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
		|| { echo "Python 3.11 to 3.14 is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(PIP_INSTALL) "$(TORCH)" || $(PIP_INSTALL) --extra-index-url $(CPU_INDEX) "$(TORCH)"
	$(PIP_INSTALL) --editable ".[dev]"
	@rm -f $(VENV)/.ready-*
	@touch $@

run: setup
	$(BIN)/python -m helpers fetch smollm2-135m
	$(BIN)/python -m helpers run --workers $(WORKERS) $(QUICK)
	@echo "Executed notebooks and their figures: runs/  Scores: runs/results/"

# One notebook at a time, on all cores: each holds the model (3 GB in bfloat16). The doctor ends it before
# anything is downloaded where memory or disk will not do.
run-larger: setup
	$(BIN)/python -m helpers doctor params/larger/03_editing_runs.yaml
	$(BIN)/python -m helpers fetch qwen2.5-coder-1.5b
	$(BIN)/python -m helpers run --workers 1 $(wildcard params/larger/*.yaml)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy helpers benchmarks tools

# WORKERS processes with one thread each take half the time of one process with two.
# -rs: what a machine cannot run (Slurm, a small disk, a browser, a GPU) is listed with the reason.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile
NBVAL := --nbval-lax --nbval-current-env --nbval-cell-timeout 1800

test: lint
	$(PYTEST) -rs -m "not slow" tests
	$(PYTEST) $(NBVAL) $(CHECKED)

test-all: lint
	$(PYTEST) -rs tests
	$(PYTEST) $(NBVAL) notebooks/*.ipynb

# A reading site of the committed notebooks, results and docstrings; executes nothing.
book: setup
	@$(BIN)/python -c 'import furo, myst_nb' 2>/dev/null || $(PIP_INSTALL) --editable ".[book]"
	$(BIN)/python book/build.py

clean:
	rm -rf $(VENV) runs
