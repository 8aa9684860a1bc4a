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
# What pytest compiles is kept, whatever the environment says: the next run then starts ten seconds sooner.
PYTEST := env -u PYTHONPATH -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --installed

# Two workers share the test files: what one waits for, the other computes. JOBS=0 runs in one process.
JOBS   ?= 2
# The architecture is for `make check`, which `make test` begins with.
SPREAD := -n $(JOBS) --dist loadfile --no-loadscope-reorder --deselect tests/test_architecture.py

# In CI a compiler's warning is an error; elsewhere a newer compiler may know more of them.
WERROR := $(if $(filter true,$(CI)),-C cmake.define.HEADWAY_WERROR=ON)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help serve test test-fast test-full check sanitize emulate cross-aarch64 quality bench bench-check bench-peers format dev wheel clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

COMMA := ,
# A second copy of the package, its module built with other options: $(call package_with,FOLDER,OPTIONS)
package_with = $(BIN)/python -m pip install -q --no-deps --no-build-isolation --upgrade --target $(1)/package \
  -C build-dir=$(1)/module -C cmake.define.HEADWAY_WERROR=ON $(2) .
driver = PATH="$(abspath $(BIN)):$$PATH" cmake -S native -B $(1) -DHEADWAY_DRIVER=ON -DHEADWAY_WERROR=ON $(2) >/dev/null && \
  PATH="$(abspath $(BIN)):$$PATH" cmake --build $(1) --parallel 2 >/dev/null
NATIVE_TESTS := tests/parity tests/property/test_native_bits.py tests/property/test_native_face.py

sanitize: $(STAMPS)/build $(STAMPS)/dev  ## native tests under the address, undefined-behaviour and thread sanitizers
	@for kind in address,undefined thread; do \
	  echo "building the driver with -fsanitize=$$kind ..."; \
	  $(call driver,build/sanitize-$$kind,-DCMAKE_BUILD_TYPE=Debug -DHEADWAY_SANITIZE=$$kind) && \
	  build/sanitize-$$kind/headway_driver || exit 1; \
	done
	@echo "building the module with -fsanitize=address,undefined ..."
	@$(call package_with,build/sanitize,-C cmake.build-type=Debug -C cmake.define.HEADWAY_SANITIZE=address$(COMMA)undefined)
	LD_PRELOAD="$$($${CXX:-g++} -print-file-name=libasan.so) $$($${CXX:-g++} -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=2000 \
	  PYTHONPATH=build/sanitize/package $(BIN)/python -m pytest --installed -q -p no:cacheprovider \
	  -m "native and not model and not slow" $(NATIVE_TESTS)

emulate: $(STAMPS)/build $(STAMPS)/dev  ## the AVX-512 kernel sets by AVX2 stand-ins: native tests and quality
	@echo "building the module with stand-ins for AVX-512 ..."
	@$(call package_with,build/emulate,-C cmake.define.HEADWAY_EMULATE_AVX512=ON)
	PYTHONPATH=build/emulate/package $(BIN)/python -m pytest --installed -q -p no:cacheprovider \
	  -m "not slow" $(NATIVE_TESTS)

quality: $(STAMPS)/package  ## what quantisation costs, by eight windows of each text; fails where a promise is broken
	$(BIN)/python benchmarks/quality.py --check $(ARGS)

ROUNDS ?= 5
WORK   ?= serving16 serving32 serving64 stream prefill512 prefill2048 interference

bench: $(STAMPS)/package  ## our own numbers on this machine: a table, and benchmarks/results/latest.json
	$(BIN)/python -m benchmarks.own $(ARGS)

bench-check: $(STAMPS)/package  ## fails where serving is less than half as fast as recorded for this processor
	$(BIN)/python -m benchmarks.own --check

bench-peers: $(STAMPS)/package  ## other systems from PyPI, the same work in alternation; writes docs/benchmarks.md
	$(BIN)/python -m benchmarks.peers run --rounds $(ROUNDS) --only $(WORK) $(ARGS)
	$(BIN)/python -m benchmarks.peers page

AARCH64_ROOT ?= /usr/aarch64-linux-gnu

cross-aarch64: $(STAMPS)/build  ## build the compiled core for aarch64 and run its driver there, by qemu
	@for tool in aarch64-linux-gnu-g++ qemu-aarch64; do command -v $$tool >/dev/null || { \
	  echo "cross-aarch64 needs a cross compiler and an emulator, and $$tool is not there." >&2; \
	  echo "Debian and Ubuntu: apt install g++-aarch64-linux-gnu qemu-user" >&2; exit 2; }; done
	@echo "building the driver for aarch64 ..."
	@$(call driver,build/cross-aarch64,-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++)
	qemu-aarch64 -L $(AARCH64_ROOT) build/cross-aarch64/headway_driver

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
	@echo "building and installing headway (what is compiled for the first time takes a minute or two) ..."
	@$(BIN)/python -m pip install -q --no-deps --no-build-isolation --force-reinstall $(WERROR) .
	@touch $@
