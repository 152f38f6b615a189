# Nothing but Python >= 3.10 (with venv and pip), make and git is needed; all else goes into .venv.
PYTHON ?= python3
# One more than two cores: some tests wait for other processes.
WORKERS ?= 3
BIN := .venv/bin

.PHONY: help demo test test-all fuzz lint docs bench floors wheel-test wheels picture clean

help:
	@echo "make demo    make a small multi-node report set and translate it, into demo/"
	@echo "make test    run the tests (those on real reports when ../shared/reports is there)"
	@echo "make test-all  the same, with those that repeat on more reports and sizes what others check"
	@echo "make fuzz    damaged and hostile inputs at random, for hours: FUZZ_OPTIONS=\"--hours 4 --seed 1\""
	@echo "make lint    ruff and mypy"
	@echo "make docs    the documentation site, into build/site"
	@echo "make bench   speed beside nsys2prv 0.5.8 of PyPI, time and memory on long and on many reports, clocks"
	@echo "make floors  the tests with the oldest versions that pyproject.toml allows"
	@echo "make wheel-test  the wheel, installed into a fresh environment: the demo and some tests"
	@echo "make wheels  a folder of wheels, build/wheels, for an installation without a network"
	@echo "make picture  take the picture of the page again, from the demo"
	@echo "make clean   remove everything that these made"

demo: .venv/.with-nothing
	$(BIN)/nsys2prv demo demo

# Neighbours in the list share what they are made of: each worker gets a half of it, and takes from the other at the end.
# A test that hangs ends its worker, and with it the run: a new worker would begin with that test again.
PYTEST := -m pytest -n $(WORKERS) --dist worksteal --max-worker-restart 0

# Workers share the cores: one thread of Polars each. `make test-all` leaves their number to Polars.
test: export POLARS_MAX_THREADS = 1
# A worker runs thousands of tests: the allocator of the C library gives back what it would keep for the next ones.
test: export MALLOC_ARENA_MAX = 2
test: export MALLOC_MMAP_THRESHOLD_ = 1000000
test: export MALLOC_TRIM_THRESHOLD_ = 1000000
# Also where the environment forbids it, Python keeps what it compiled: tests start hundreds of processes.
test: export PYTHONDONTWRITEBYTECODE =
test: .venv/.with-test
	$(BIN)/python $(PYTEST) -m "not thorough" $(PYTEST_OPTIONS)

test-all: .venv/.with-test
	$(BIN)/python $(PYTEST) $(PYTEST_OPTIONS)

fuzz: .venv/.with-test
	PYTHONPATH=.:tests $(BIN)/python -m faults.fuzz.runner $(FUZZ_OPTIONS)

lint: .venv/.with-test .venv/.with-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/.with-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: .venv/.with-test
	$(BIN)/python tests/bench/run.py $(BENCH_OPTIONS)

floors: .bench/floors/.installed
	.bench/floors/bin/python $(PYTEST) -m "not thorough" $(PYTEST_OPTIONS)

# The wheel as users install it, away from the checkout. pytest itself does not put the folder where it runs on the path.
INSTALLED := build/wheel-test
wheel-test:
	rm -rf dist
	$(call new_venv,$(INSTALLED))
	$(INSTALLED)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(INSTALLED)/bin/python -m pip install --quiet --disable-pip-version-check "$$(echo dist/*.whl)[test]"
	$(INSTALLED)/bin/python -m pip check
	$(INSTALLED)/bin/nsys2prv demo $(INSTALLED)/demo
	$(INSTALLED)/bin/pytest tests/installation tests/demo tests/api tests/cli/test_options.py $(PYTEST_OPTIONS)

wheels:
	$(call new_venv,build/wheels-env)
	rm -rf build/wheels
	build/wheels-env/bin/python -m pip wheel --quiet --disable-pip-version-check --wheel-dir build/wheels .
	@echo 'pip install --no-index --find-links build/wheels nsys2prv'

picture: .venv/.with-test
	$(BIN)/python tools/page_picture.py

clean:
	rm -rf .venv .bench demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call new_venv,FOLDER): python3 without ensurepip (Debian without python3-venv) leaves half a folder behind.
define new_venv
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
  { echo "$(PYTHON) is not Python 3.10 or newer; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
  { echo "$(PYTHON) can't make virtual environments; install its venv package (Debian: apt install python3-venv)" >&2; exit 1; }
@rm -rf $(1) && $(PYTHON) -m venv $(1)
endef

.venv/.made:
	$(call new_venv,.venv)
	@touch $@

# The tests and the linters share one environment: each stamp adds the extra of its name to what is there.
.venv/.with-nothing: .venv/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/.with-%: .venv/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@

# Every `"NAME>=VERSION` of the dependencies and of the extra `test`, as NAME==VERSION; and a click that is as old as the typer.
.bench/floors/.installed: pyproject.toml
	$(call new_venv,.bench/floors)
	sed -n '/^dependencies = \[/,/^\]/p; /^test = /p' pyproject.toml | grep -o '"[a-z0-9-]*>=[0-9.]*' | tr -d '"' | sed 's/>=/==/' \
	  > .bench/floors/requirements.txt
	echo 'click==8.2.1' >> .bench/floors/requirements.txt
	.bench/floors/bin/python -m pip install --quiet --disable-pip-version-check --editable . -r .bench/floors/requirements.txt
	@touch $@
