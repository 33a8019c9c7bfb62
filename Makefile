# make demo, make test: each sets up whatever it needs (a .venv, the packages, the native build) and nothing twice.
PYTHON ?= python3
BIN := .venv/bin
NATIVE := $(wildcard native/*.cpp native/*.hpp) CMakeLists.txt
export PYTHONWARNINGS ?= default

.PHONY: demo test lint bench reproduce sanitize fuzz clean
.DELETE_ON_ERROR:

demo: .venv/.package
	$(BIN)/neuralcde demo --out demo

# Tests start many processes: with bytecode kept, each spends a second less on compiling the package.
test: export PYTHONDONTWRITEBYTECODE :=
test: lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: .venv/.package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.bench
	$(BIN)/python -m benchmarks

# make reproduce NAME=character_trajectories: the paper's experiment and its tables; goes on where it was stopped.
reproduce: .venv/.package
	$(BIN)/python -m experiments $(NAME) $(ARGS)
	$(BIN)/python -m experiments $(NAME) tables $(ARGS)

# The native tests again, against builds with the sanitizers of GCC.
sanitize: .venv/.package
	bash tests/native/sanitize.sh address,undefined
	bash tests/native/sanitize.sh thread

# Random tables, model folders and checkpoints for an hour, or for SECONDS.
SECONDS ?= 3600
fuzz: .venv/.package
	$(BIN)/python -W error tests/fuzz/run.py --seconds $(SECONDS)

clean:
	rm -rf .venv build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Debian's python3 without python3-venv has venv but not ensurepip.
.venv/bin/python:
	$(PYTHON) -m venv .venv || { rm -rf .venv && $(PYTHON) -m venv --without-pip .venv && \
	  $(PYTHON) -m pip --python .venv/bin/python install -q pip; }

.venv/.build-tools: constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install -q -c constraints.txt scikit-build-core nanobind cmake ninja
	touch $@

.venv/.package: pyproject.toml constraints.txt $(NATIVE) .venv/.build-tools
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[cli,dev]'
	touch $@

.venv/.bench: .venv/.package
	$(BIN)/python -m pip install -q -c constraints.txt torchcde torchdiffeq diffrax jax scipy
	touch $@
