# `make run` sets up and runs the main job; `make test` sets up and passes the tests; `make check` is what a commit needs.
PYTHON ?= python3.11
BIN := .venv/bin
HTA := .hta/bin
PIP := -m pip install --quiet --disable-pip-version-check --no-input

run: .venv/core
	$(BIN)/zerosim run scenarios/seven-b/zero3.yaml

test: .venv/dev .hta/done
	$(BIN)/python -m pytest -n auto $(BY_FILE) --ignore tests/bench
	$(MAKE) -j2 --output-sync=target counts hta

BY_FILE := --dist loadfile --no-loadscope-reorder # what the tests of a file share is made once, and tests/conftest.py has the order

counts: .venv/dev
	$(BIN)/python -m pytest tests/bench -m "not timed"

hta: .hta/done
	$(HTA)/python -m pytest tests/hta

check: lint types test

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev
	$(BIN)/mypy

bench: .venv/dev
	$(BIN)/python -m pytest tests/bench -s

.venv/core: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) --require-hashes -r requirements.lock
	$(BIN)/python $(PIP) --no-deps --no-build-isolation -e .
	touch $@

.venv/dev: .venv/core requirements-dev.lock
	$(BIN)/python $(PIP) --require-hashes -r requirements-dev.lock
	touch $@

# HolisticTraceAnalysis asks for a notebook server; what its analyses need is less, and has an environment of its own.
.hta/done: .ci/hta-requirements.txt pyproject.toml
	$(PYTHON) -m venv .hta
	$(HTA)/python $(PIP) --no-deps -r .ci/hta-requirements.txt
	touch $@

# The locks hold versions and hashes and no address.
lock: .venv/dev
	$(BIN)/python $(PIP) uv
	$(BIN)/uv pip compile -q pyproject.toml --extra build $(LOCK) -o requirements.lock
	$(BIN)/uv pip compile -q pyproject.toml --all-extras $(LOCK) -o requirements-dev.lock
LOCK := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

clean:
	rm -rf .venv .hta

unexport PYTHONDONTWRITEBYTECODE # or every process that a test starts compiles what it imports

.PHONY: run test counts hta check lint types bench lock clean
