# Everything lives in .venv, made on first use. Needs git, Python >= 3.11 and a C++ compiler.
#   make serve ARGS="--port 9000"        make test PYTHON=python3.12        make test TESTS="tests/unit/kv -x"

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
TESTS  ?= tests

BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps
# Folders are listed beside files, so that a deleted file is noticed too.
SOURCES := pyproject.toml LICENSE $(shell find src native -name __pycache__ -prune -o -name '*.so' -o -print 2>/dev/null)

# Tests run against the built wheel: no PYTHONPATH, and --installed fails the run if `headway` comes from src.
PYTEST := env -u PYTHONPATH $(BIN)/python -m pytest --installed

# Two workers share the test files: what one waits for, the other computes. JOBS=0 runs in one process.
JOBS   ?= 2
SPREAD := -n $(JOBS) --dist loadfile

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help serve test test-fast test-full check sanitize format dev wheel clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: $(STAMPS)/package  ## install, fetch the default model once, serve it (ARGS= flags of `headway serve`)
	$(BIN)/headway serve $(ARGS)

test: check  ## what CI runs: the static checks, then all tests but the slow ones
	$(PYTEST) $(SPREAD) -m "not slow" $(TESTS)

test-fast: $(STAMPS)/package $(STAMPS)/dev  ## tests that need neither the model nor the compiled executor (under a minute)
	$(PYTEST) $(SPREAD) -m "not slow and not model and not native" $(TESTS)

test-full: check  ## all tests, the slow ones and long random searches included
	$(PYTEST) $(SPREAD) --hypothesis-profile=full $(TESTS)

check: $(STAMPS)/package $(STAMPS)/dev  ## format, lint, types, architecture
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(PYTEST) -q tests/test_architecture.py

sanitize: $(STAMPS)/build  ## the compiled executor under the address, undefined-behaviour and thread sanitizers
	@for kind in address,undefined thread; do \
	  echo "building with -fsanitize=$$kind ..."; \
	  PATH="$(abspath $(BIN)):$$PATH" cmake -S native -B build/sanitize-$$kind -DCMAKE_BUILD_TYPE=Debug \
	    -DHEADWAY_SANITIZE=$$kind -DHEADWAY_WERROR=ON >/dev/null && \
	  PATH="$(abspath $(BIN)):$$PATH" cmake --build build/sanitize-$$kind --parallel >/dev/null && \
	  build/sanitize-$$kind/headway_driver || exit 1; \
	done

format: $(STAMPS)/dev  ## rewrite the code in the project's format and apply safe lint fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

dev: $(STAMPS)/build $(STAMPS)/dev  ## editable install for daily work (`make test` puts the built wheel back)
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation --force-reinstall -e .
	@rm -f $(STAMPS)/package

wheel: $(STAMPS)/build  ## build dist/*.whl
	$(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w dist .

clean:  ## remove everything that was built (the environment too)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# ---- set-up, in three steps that each run only when their cause changed -----------------------------------------------

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  version=$$($(PYTHON) -V 2>&1 | grep -o '^Python [0-9.]*'); \
	  echo "headway needs Python 3.11 or newer, and '$(PYTHON)' is $${version:-not a Python that runs here}." >&2; \
	  echo "Point to another one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@command -v "$${CXX:-c++}" >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || { \
	  echo "headway compiles its executor and found no C++ compiler (c++, g++, clang++, or CXX)." >&2; \
	  echo "Debian and Ubuntu: apt install g++.  Fedora: dnf install gcc-c++.  macOS: xcode-select --install" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }
	@mkdir -p $(STAMPS) && touch $@

# The build's own needs stay in .venv (no build isolation), so that a rebuild finds its objects where it left them.
$(STAMPS)/build: pyproject.toml | $(STAMPS)/venv
	@echo "setting up the build in $(VENV) ..."
	@$(BIN)/python scripts/requirements.py build > $(STAMPS)/build.txt
	@$(BIN)/python -m pip install -q -r $(STAMPS)/build.txt
	@$(BIN)/python scripts/requirements.py tools > $(STAMPS)/tools.txt
	@$(BIN)/python -m pip install -q -r $(STAMPS)/tools.txt
	@touch $@

$(STAMPS)/runtime: pyproject.toml | $(STAMPS)/venv
	@echo "installing the libraries headway needs ..."
	@$(BIN)/python scripts/requirements.py runtime > $(STAMPS)/runtime.txt
	@$(BIN)/python -m pip install -q -r $(STAMPS)/runtime.txt
	@touch $@

$(STAMPS)/dev: pyproject.toml $(STAMPS)/runtime
	@echo "installing the tools for development ..."
	@$(BIN)/python scripts/requirements.py dev > $(STAMPS)/dev.txt
	@$(BIN)/python -m pip install -q -r $(STAMPS)/dev.txt
	@touch $@

$(STAMPS)/package: $(SOURCES) $(STAMPS)/build $(STAMPS)/runtime
	@echo "building and installing headway ..."
	@$(BIN)/python -m pip install -q --no-deps --no-build-isolation --force-reinstall .
	@touch $@
