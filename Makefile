PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

$(BIN)/zerosim: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

setup: $(BIN)/zerosim

run: setup
	$(BIN)/zerosim run scenarios/seven-b/zero3.yaml

test: setup
	$(BIN)/python -m pytest -n auto

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

check: lint types test

.PHONY: setup run test lint types check
