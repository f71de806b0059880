PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint bench results docs clean

demo: $(VENV)/installed
	$(BIN)/corollary demo

test: $(VENV)/installed-test
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell src tests docs/*.md *.md
	$(BIN)/mypy

bench: $(VENV)/installed-peers
	$(BIN)/python -m bench

results: $(VENV)/installed-peers
	$(BIN)/python -m results

docs: $(VENV)/installed-test
	$(BIN)/python -m docs

# torch comes first and alone: with it in place nothing else asks for another build of it.
$(VENV)/installed: pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable .
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(PIP) --editable '.[test]'
	touch $@

$(VENV)/installed-peers: $(VENV)/installed-test
	$(PIP) --editable '.[peers]'
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache
