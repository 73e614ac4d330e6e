# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: soak lock sbom demo test test-all docs lint types setup clean

setup: $(STAMP)

# torch comes first and exactly pinned, so that pip takes the CPU build and nothing pulls CUDA in behind it
$(STAMP): pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test,dev]'
	touch $(STAMP)

demo: setup
	$(BIN)/stepformer demo

test: lint types
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --cov --cov-report=term:skip-covered

test-all: setup
	$(BIN)/pytest -m 'slow or not slow' --cov --cov-report=term:skip-covered

# the documentation with an API reference from the docstrings, as site/index.html; needs no network
docs: setup
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
CASES ?= 1000000
KILLS ?= 200
soak: setup  # an hour or more of one core; stopped, it goes on from build/soak.json. CASES=50000 KILLS=20: minutes
	nice -n 19 $(BIN)/python tests/fuzz/soak.py --cases $(CASES) --kills $(KILLS) --requests 5000 --state build/soak.json

# what pip would install, with hashes; needs the registry
lock: setup
	$(BIN)/pip install --quiet --dry-run --ignore-installed --report - --constraint constraints.txt torch \
		--editable '.[test,dev]' | $(BIN)/python tools/supply_chain.py lock > requirements.lock.new
	mv requirements.lock.new requirements.lock

sbom: setup
	$(BIN)/python tools/supply_chain.py sbom > sbom.json

lint: setup
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools

types: setup
	$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
