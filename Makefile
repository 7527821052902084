# Every target works on a fresh checkout: it makes .venv, installs what it needs, and starts and stops what it uses.
#
#   make demo    the main job: real agents, really killed, counted in the receiver's ledger   (ARGS=--json for the table)
#   make test    the whole test suite                         (WORKERS=0 for one process, ARGS="-k lease" to pick tests)
#   make check   lint, types, house rules, documentation
#   make fix     what ruff can put right by itself
#   make test-pgbouncer   the store through a real pgbouncer (which has to be installed)
#   make test-crashtest-proxy   crashtest's intercepting proxy (mitmproxy, in an environment of its own)
#   make bench   speed and size beside the raw limit          (make bench-peers adds the environments of other engines)
#   make bench-crash   how long crashtest takes: 100 boundaries by the fork server, and 10 x 3 of an agent of a second
#   make targets published agents, killed: docs/kill-anywhere.md   (make target-skyvern: Skyvern, which needs Chromium and ffmpeg)
#   make test-frameworks        agents of published frameworks, killed, each in its own environment  (ARGS=NAME for one)
#   make test-frameworks-light  those that CI runs
#   make test-engines           Temporal, DBOS, Restate, LangGraph, Celery, Absurd, kairo: killed as published, and with Surefoot inside
#   make breaks  breaks each safety rule on purpose, and says which test sees it    (about three hours; ARGS="proxy crashtest" for areas)
#   make clean   remove everything that the targets above made, results included

SHELL   := /bin/bash
PYTHON  ?= $(shell for p in python3.11 python3 python3.13 python3.12; do \
             $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV    ?= .venv
BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check --quiet
WORKERS ?= 2
ARGS    ?=

# pyright's Python wrapper would otherwise ask the registry for a newer version of itself on each run.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-pgbouncer test-crashtest-proxy check lint types docs fix bench bench-crash bench-peers breaks targets target-skyvern test-frameworks test-frameworks-light test-engines clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/.installed-demo
	$(BIN)/surefoot demo $(ARGS)

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --durations 10 $(ARGS)

# Needs pgbouncer itself, which no package index carries: apt-get install pgbouncer.
test-pgbouncer: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q tests/pgbouncer/real_pgbouncer.py $(ARGS)

# mitmproxy pins packages that the tests need newer ones of, so it stands in an environment of its own.
test-crashtest-proxy: $(VENV)/.installed-dev
	@test -x .venv-mitmproxy/bin/mitmdump || { $(BIN)/python -m venv .venv-mitmproxy 2>/dev/null || $(BIN)/python -m virtualenv --quiet .venv-mitmproxy; \
	  .venv-mitmproxy/bin/python -m pip --disable-pip-version-check --quiet install 'mitmproxy>=10'; }
	SUREFOOT_MITMDUMP=$(CURDIR)/.venv-mitmproxy/bin/mitmdump $(BIN)/python -m pytest -q tests/crashtest/test_crashtest_proxy.py $(ARGS)

check: lint types docs

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.installed-dev
	$(BIN)/pyright

docs: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q tests/test_tidy.py tests/test_docs.py

fix: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/.installed-dev
	$(BIN)/python -m bench $(ARGS)

bench-crash: $(VENV)/.installed-dev
	$(BIN)/python -m bench.crash $(ARGS)

breaks: $(VENV)/.installed-dev
	$(BIN)/python -m tests.breaking $(ARGS)

bench-peers: $(VENV)/.installed-dev
	$(BIN)/python -m bench.peers install $(ARGS)

targets: $(VENV)/.installed-dev
	$(BIN)/python -m targets run --by targets $(ARGS)

# AGPL: installed into an environment of its own, started as a program, never imported by us.
target-skyvern: $(VENV)/.installed-dev
	$(BIN)/python -m targets run skyvern $(ARGS)

# What was measured is kept in engines/results, and the table of docs/inside.md is made from it.
test-engines: $(VENV)/.installed-dev
	$(BIN)/python -m engines run $(ARGS)
	$(BIN)/python -m engines check
	$(BIN)/python -m targets run probes-engines engines

# What was measured is kept in frameworks/results, and docs/frameworks/README.md is made from it.
test-frameworks: $(VENV)/.installed-dev
	$(BIN)/python -m frameworks --save $(ARGS)

test-frameworks-light: $(VENV)/.installed-dev
	$(BIN)/python -m frameworks --light --version newest $(ARGS)

clean:
	rm -rf $(VENV) .venv-tool .venv-mitmproxy build dist .pytest_cache .ruff_cache .hypothesis bench/.envs targets/.envs frameworks/.envs engines/.envs bench/results surefoot-demo demo-report.html crashtest-results
	find src tests bench targets frameworks engines -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# One stamp per extra: the demo does not wait for the test tools. Both are made again when pyproject.toml changes.
$(VENV)/.installed-demo: pyproject.toml | $(VENV)/bin/activate
	$(PIP) install -e '.[demo]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/activate
	$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/.installed-demo

# Debian's python3 comes without ensurepip, so `-m venv` may fail half-way; each way is tried from an empty folder.
$(VENV)/bin/activate:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found. Install it, or say where it is: make PYTHON=/path/to/python" >&2; exit 1; }
	@rm -rf $(VENV) .venv-tool; \
	why=$$($(PYTHON) -m venv $(VENV) 2>&1) && exit 0; \
	rm -rf $(VENV); $(PYTHON) -m virtualenv --quiet $(VENV) 2>/dev/null && exit 0; \
	rm -rf $(VENV); virtualenv --quiet --python $(PYTHON) $(VENV) 2>/dev/null && exit 0; \
	rm -rf $(VENV); $(PYTHON) -m pip install --quiet --target .venv-tool virtualenv 2>/dev/null \
	  && PYTHONPATH=.venv-tool $(PYTHON) -m virtualenv --quiet $(VENV) && { rm -rf .venv-tool; exit 0; }; \
	rm -rf $(VENV) .venv-tool; \
	printf '%s\n\n' "$$why" >&2; \
	echo "No virtual environment could be made with $(PYTHON). One of these is enough, then run make again:" >&2; \
	echo "  apt-get install python3-venv          (Debian, Ubuntu)" >&2; \
	echo "  $(PYTHON) -m pip install --user virtualenv" >&2; \
	exit 1
