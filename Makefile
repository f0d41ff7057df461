# make run   set up, fetch the default model, execute every notebook with its quick profile
# make test  set up, then lint, types, unit tests and notebook regression tests
#
# On a machine with a GPU:  make run TORCH=torch==2.13.0
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
# Notebook kernels and tests run quietly and never look for a hub.
export TQDM_DISABLE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: setup run test lint clean

setup: $(VENV)/.ready

# torch first and by itself: its CPU build would otherwise be replaced by one that brings CUDA.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$(TORCH)" \
		|| $(BIN)/python -m pip install --quiet --index-url $(CPU_INDEX) "$(TORCH)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

run: setup
	$(BIN)/python -m helpers fetch smollm2-135m
	@set -e; for notebook in notebooks/*.ipynb; do \
		$(BIN)/python -m helpers run "params/quick/$$(basename $$notebook .ipynb).yaml"; \
	done
	@echo "Executed notebooks: runs/  Figures: figures/  Scores: runs/results/"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy helpers benchmarks

test: lint
	$(BIN)/python -m pytest tests
	$(BIN)/python -m pytest --nbval-lax --nbval-cell-timeout 1800 notebooks

clean:
	rm -rf $(VENV) runs
