# Everything happens in an environment of its own, .venv, which follows pyproject.toml.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUN    := $(BIN)/python
STAMPS := $(VENV)/installed
DIGITS := examples/digits
CPP    := $(shell find native -name '*.?pp' -not -path '*/build/*')
NATIVE := $(shell find native -type f -not -path '*/build/*')

# CMake of the machine, else the one that pip put into the environment
CMAKE := $(or $(shell command -v cmake),$(BIN)/cmake)

# How many compilers run at the same time; CMake would start one for each file
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)

# Extra arguments for the native tests or benchmarks, such as make native-bench NATIVE_ARGS="--benchmark_filter=conv"
NATIVE_ARGS ?=

# Extra arguments for the tests on Arm, such as make arm ARM_ARGS="--cpu neoverse-n1 --networks 2000"
ARM_ARGS ?=

# What `make lint` runs at the same time
LINTS := lint-types lint-python lint-words lint-native

# Tests start many processes. Without compiled modules, each of them compiles the package first.
unexport PYTHONDONTWRITEBYTECODE

# Extra arguments for pytest, such as make test PYTEST_ARGS="-k softmax"
PYTEST_ARGS ?=
PYTEST := $(RUN) -m pytest

# How many processes run tests at the same time: one more than there are processors, since some tests wait
TESTERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
TESTS  := tests compat/pyarmnn/tests

# The sources and pages that differ from the last commit
CHANGED = $(filter %.py %.md %.c %.cpp %.h %.hpp %.rs,$(shell git status --porcelain --no-renames -uall | grep -v '^ *D' | cut -c4-))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo quick test run-tests test-all batch-test sanitize exports native native-test native-bench arm-root arm bench lint $(LINTS) format docs site clean

help:  ## say what there is to make
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

# An environment with all tools is used as it is; else one is made that has just what is needed.
demo: $(if $(wildcard $(STAMPS)-dev),$(STAMPS)-dev,$(STAMPS)-demo)  ## classify a handwritten digit, and show which backend ran what
	$(BIN)/interposer run $(DIGITS)/digits.onnx --input $(DIGITS)/seven.png --labels $(DIGITS)/labels.txt --top 3
	$(BIN)/interposer explain $(DIGITS)/digits.onnx

quick: $(STAMPS)-dev  ## find most errors in a minute: lint what changed, and run the tests that find most in a second
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(if $(CHANGED),$(RUN) tools/words.py $(CHANGED))
	$(RUN) -m mypy
	$(PYTEST) -p tests.quick -n $(TESTERS) --dist worksteal -m 'not slow' $(PYTEST_ARGS)

test: $(STAMPS)-dev  ## run all tests but the slow ones, and `lint` beside them; list the twenty that took longest
	@$(MAKE) --no-print-directory --jobs $(LINTS) run-tests

run-tests: # without the flags of this make, which programs of tests would follow
	MAKEFLAGS= $(PYTEST) -n $(TESTERS) --dist worksteal --durations=20 -m 'not slow' $(TESTS) $(PYTEST_ARGS)

test-all: lint  ## the same with the slow tests and newly drawn examples, and once more without the reference backend and without direct calls
	$(PYTEST) -n $(TESTERS) --hypothesis-profile=random $(TESTS) $(PYTEST_ARGS)
	INTERPOSER_DISABLED_BACKENDS=CpuRef $(PYTEST) -n $(TESTERS) -m 'not slow' tests
	INTERPOSER_DIRECT_CALLS=no $(PYTEST) -n $(TESTERS) -m 'not slow' tests/session tests/runtime tests/plugins

batch-test: $(STAMPS)-batch  ## run the examples for Ray and Spark, with workers and jobs that are killed (needs Java)
	$(PYTEST) tests/examples/test_batch_examples.py $(PYTEST_ARGS)

sanitize: $(STAMPS)-dev  ## build CpuAcc, GpuAcc and the bridges with sanitizers, and run the conformance kit, random networks, hosts and threads
	$(PYTEST) -m slow -k sanitizers tests/backends tests/bridges $(PYTEST_ARGS)

exports: $(STAMPS)-exports  ## install PyTorch, so that `make test` tries what it exports too (200 MB and more)

native: $(STAMPS)-dev  ## build the native backends anew, and show what is wrong where that fails
	@$(RUN) -m pip uninstall -qqq --yes interposer # the package's name until it was interposer-nn
	$(RUN) -m pip install --quiet --no-deps --no-build-isolation --config-settings=native=required --editable .

native-test:  ## build the unit tests of the native kernels, and run them (apt install cmake libgtest-dev)
	$(CMAKE) -S native -B build/native -DCMAKE_BUILD_TYPE=Release -DNATIVE_TESTS=ON
	$(CMAKE) --build build/native --parallel $(JOBS) --target native_tests
	build/native/tests/native_tests --gtest_brief=1 $(NATIVE_ARGS)

native-bench:  ## measure the native kernels beside the peak of the processor (apt install cmake libbenchmark-dev)
	$(CMAKE) -S native -B build/native -DCMAKE_BUILD_TYPE=Release -DNATIVE_BENCHMARKS=ON
	$(CMAKE) --build build/native --parallel $(JOBS) --target native_benchmarks
	build/native/benchmarks/native_benchmarks --benchmark_min_time=0.1 $(NATIVE_ARGS)

arm-root: $(STAMPS)-dev  ## fetch what `make arm` needs into a cache folder: an emulator, a root folder for 64-bit Arm, and packages (1.1 GB)
	$(RUN) tools/arm.py root
	$(RUN) tools/arm.py counter

arm: $(STAMPS)-dev  ## build for 64-bit Arm, and test and count by emulation at three levels of processors
	$(RUN) tools/arm.py test $(ARM_ARGS)
	$(RUN) tools/arm.py count

lint: $(STAMPS)-dev  ## check style, format, words and types
	@$(MAKE) --no-print-directory --jobs --output-sync=line $(LINTS)

lint-types:
	$(RUN) -m mypy

lint-python:
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check

lint-words:
	$(RUN) tools/words.py

lint-native:
	$(BIN)/clang-format --dry-run --Werror $(CPP)

format: $(STAMPS)-dev  ## format the Python and C++ sources
	$(RUN) -m ruff format
	$(BIN)/clang-format -i $(CPP)

bench: $(STAMPS)-dev  ## measure side by side with the peers that are installed
	$(RUN) benchmarks/run.py

docs: $(STAMPS)-dev  ## write the generated reference pages anew
	$(RUN) tools/generate.py
	$(RUN) tools/onnx_cases.py

site: $(STAMPS)-docs  ## build the documentation as a site in build/site, with every warning as an error
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict

clean:  ## remove the environment and all that was built or cached
	rm -rf $(VENV) build dist compat/*/dist src/interposer/native native/*/build examples/*/build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests examples compat -name __pycache__ -type d -prune -exec rm -rf {} +
	find src -name '*.abi3.so' -delete -o -name libinterposer_bridge.so -delete

# Installed are either what the demonstration needs, or everything and the tools.
$(STAMPS)-demo: pyproject.toml $(NATIVE)
	@$(CHECK_PYTHON)
	$(PYTHON) tools/demo.py $(VENV)
	@touch $@

$(STAMPS)-dev: pyproject.toml compat/pyarmnn/pyproject.toml $(NATIVE) | $(RUN)
	$(RUN) -m pip install --quiet --editable '.[all,dev]' --editable compat/pyarmnn
	@touch $@

$(STAMPS)-exports: pyproject.toml | $(STAMPS)-dev
	$(call INSTALL_EXTRA,exports)
	@touch $@

$(STAMPS)-batch: pyproject.toml | $(STAMPS)-dev
	$(call INSTALL_EXTRA,batch-examples)
	@touch $@

$(STAMPS)-docs: pyproject.toml | $(STAMPS)-dev
	$(call INSTALL_EXTRA,docs)
	@touch $@

# Installs only what an extra requires: installing the package again would compile the native backends once more.
define INSTALL_EXTRA
$(RUN) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$(1)"], sep="\n")' \
  | $(RUN) -m pip install --quiet --requirement /dev/stdin
endef

define CHECK_PYTHON
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "Python 3.11 or later is needed; name one with: make PYTHON=/path/to/python3.11" >&2; exit 1; }; \
$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
  echo "$(PYTHON) cannot make virtual environments; on Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }
endef

$(RUN):
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV)
