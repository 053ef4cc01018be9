# What one does with a checkout. Every target installs what it needs into .venv first, and only if something is missing.
#
#     make test ARGS="-k transaction"
#     make PYTHON=python3.13 test    # makes .venv anew if it is of another version

PYTHON ?= python3
ARGS ?=

bin := .venv/bin
environment := $(PYTHON) scripts/environment.py $(if $(filter file,$(origin PYTHON)),,--this-python)
pytest := $(bin)/python -m pytest -n auto
code := $(wildcard tableorm tableorm_command backends migrations tests examples benchmarks scripts)

# Without this, pyright asks the network whether it is the newest.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# The targets share one environment, which two of them must not change at once.
.NOTPARALLEL:
.PHONY: help demo test torture lint format bench docs clean

help:
	@echo "make demo    load a month of flights and ask questions"
	@echo "make test    run the tests, in a few minutes"
	@echo "make torture run all attacks, and at length the tests that explore at random, in an hour or two"
	@echo "make lint    check style, types and imports"
	@echo "make format  format the code"
	@echo "make bench   measure"
	@echo "make docs    build the documentation into site/, and check it"
	@echo "make clean   remove everything that was made"

demo:
	@$(environment)
	$(bin)/python examples/flights/demo.py $(ARGS)

test:
	@$(environment) test
	@$(PYTHON) scripts/azurite.py
	$(pytest) $(ARGS)

torture:
	@$(environment) test
	@$(PYTHON) scripts/azurite.py
	TORTURE=true $(pytest) -m "torture or attack" --override-ini=faulthandler_timeout=7200 $(ARGS)

lint:
	@$(environment) lint test bench
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/typos
	$(bin)/lint-imports
	$(bin)/mypy $(code)
	$(bin)/pyright $(code)
	$(bin)/python scripts/check_docs_types.py

format:
	@$(environment) lint
	$(bin)/ruff check --fix-only .
	$(bin)/ruff format .

bench:
	@$(environment) bench
	$(bin)/python -m benchmarks.run $(ARGS)

docs:
	@$(environment) docs
	$(bin)/zensical build --strict --clean
	$(bin)/python -m scripts.search_titles
	$(bin)/python -m scripts.check_site

clean:
	rm -rf .venv .azurite .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
