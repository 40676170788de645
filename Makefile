# Two commands on a fresh machine (Python 3.11+, pip, make): `make demo` and `make test`.
# Each makes .venv from pyproject.toml and constraints.txt on first use and reuses it afterwards; the demo needs little.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
LIGHT := .venv/.light
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all lowest audit lint bench docs clean help

help:
	@echo "make demo      train a small categorical VAE with every way of getting a gradient; writes report.html"
	@echo "make test      lint, type check, fast tests (minutes)"
	@echo "make test-all  the slow and statistical tests as well"
	@echo "make lowest    golden values and the heart of the tests with the oldest torch, numpy, scipy, numba (5 GB, once)"
	@echo "make audit     known vulnerabilities of the pinned versions, from PyPI"
	@echo "make bench     benchmarks, ours beside peers; JSON in benchmarks/results"
	@echo "make docs      build the documentation into site/"
	@echo "make clean     remove the environment and all caches"

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing everything that the tests need into .venv; this takes minutes, once"
	$(INSTALL) -e ".[dev,docs]"
	touch $(READY)

$(LIGHT): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing PyTorch and what the demo needs into .venv; this takes minutes, once"
	test $(READY) -nt pyproject.toml || $(INSTALL) -e ".[demo,plot]"
	touch $(LIGHT)

demo: $(LIGHT)
	$(BIN)/argrad demo

test: $(READY) lint
	$(BIN)/python -m pytest -q -n 2

test-all: $(READY) lint
	$(BIN)/python -m pytest -q -n 2 -m "slow or not slow"

LOWEST := .venv-lowest/bin/python
lowest:    # numba compiles all kernels anew on first use, which takes minutes
	test -x $(LOWEST) || $(PYTHON) -m venv .venv-lowest
	$(LOWEST) -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt \
		-e . pytest hypothesis mpmath networkx
	NUMBA_CACHE_DIR=.venv-lowest/kernels $(LOWEST) -m pytest -q tests/test_hardening.py tests/test_random.py \
		tests/test_gumbel.py tests/test_estimators.py tests/test_structures.py

audit:
	$(PYTHON) tests/audit.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/codespell

bench:    # in .venv-bench, with the peers; ARGS="--only gumbel" runs a part
	PYTHON=$(PYTHON) benchmarks/run.sh -m benchmarks $(ARGS)
	PYTHON=$(PYTHON) benchmarks/run.sh -m benchmarks.page
	$(PYTHON) docs/readme.py

docs: $(READY)
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv .venv-bench .venv-lowest site .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
