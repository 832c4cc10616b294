# Everything starts from a fresh clone: each target sets up what it needs.
.PHONY: help setup demo test check lint format clean
VENV ?= .venv
BIN := $(VENV)/bin

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup:  ## virtual environment, locked packages, embedded target (3 to 8 minutes once)
	@VENV=$(VENV) scripts/setup.sh

demo: setup  ## baseline, EAGLE-3 and P-EAGLE on the embedded default, with a report
	$(BIN)/peagle-bench run --profile smollm2-135m --suite humaneval --methods baseline,eagle3,peagle

test: check  ## everything: check, then the tests that start a real vLLM
	$(BIN)/python -m pytest -m vllm --timeout=1500

check: setup lint  ## lint, types, and every test that needs no vLLM
	$(BIN)/python -m pytest -m "not vllm" -n 3 --dist worksteal

lint: setup  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup  ## let ruff rewrite
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
