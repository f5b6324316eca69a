# The two commands of the README, and what CI calls. `make test` installs what it needs; both can be run again at once.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
JOBS ?= 2
export LITELLM_LOCAL_MODEL_COST_MAP = True
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: chat test lint bench clean install dev

chat: install
	@$(BIN)/opensage chat $(ARGS)

install: $(VENV)/.installed
dev: $(VENV)/.dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing OpenSage into $(VENV) (once, about a minute)" >&2
	@$(BIN)/python -m pip install -q -c constraints.txt -e '.[local]' >&2
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.installed

test: dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install
	$(BIN)/python -m opensage_benchmarks.overhead $(ARGS)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
