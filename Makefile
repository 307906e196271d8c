# Every target sets up what it needs in .venv; only Python 3.11+ and make must be there.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# One thread for the libraries underneath: results repeat, and tests run side by side without crowding.
THREADS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: help demo test test-all mutants test-versions browser docs lint format bench results wheel clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

# Fails, with what to do, where Python is too old.
NEW_ENOUGH = @$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "ibcb needs Python 3.11 or newer; say: make PYTHON=/path/to/python3.11"; exit 1; }

$(VENV)/pip:
	$(NEW_ENOUGH)
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/user: $(VENV)/pip pyproject.toml pins.txt
	$(PIP) install -c pins.txt -e .
	@touch $@

$(VENV)/developer: $(VENV)/user
	$(PIP) install -c pins.txt -e '.[report,test,lint]'
	@touch $@

demo: $(VENV)/user ## simulate a log, fit it, compare, and leave log, model and report in ./ibcb-demo
	$(BIN)/ibcb demo

# Three workers on two cores: many tests wait for processes of their own.
test: $(VENV)/developer ## the tests, under six minutes on two cores
	$(THREADS) $(BIN)/python -m pytest -q -n 3 --dist loadfile

test-all: $(VENV)/developer ## the tests and the slow proofs
	$(THREADS) $(BIN)/python -m pytest -q -m ''

mutants: $(VENV)/developer ## numbers of the source changed one at a time, which the tests must notice; WHICH="inverse ridge" for some
	$(THREADS) $(BIN)/python tests/mutants.py $(WHICH)

test-versions: ## tests with the lowest and the newest versions of all dependencies, on every Python here
	$(NEW_ENOUGH)
	$(THREADS) $(PYTHON) tests/versions.py $(WHICH)

browser: $(VENV)/browser $(VENV)/axe-core ## Playwright, Debian's Chromium and axe-core, for the tests of the report's page

# Accessibility is checked where npm is there; without it the tests say loudly that it was not.
AXE := axe-core@4.10.2
$(VENV)/axe-core:
	@mkdir -p $@ && cd $@ && { npm pack $(AXE) --silent >/dev/null && tar -xzf axe-core-*.tgz && rm axe-core-*.tgz; } \
	  || { cd .. && rm -rf axe-core; echo "axe-core was NOT fetched (it takes npm): accessibility will not be tested"; }

$(VENV)/browser: $(VENV)/developer
	$(PIP) install -c pins.txt -e '.[browser]'
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
	  root=; [ "$$(id -u)" = 0 ] || root=sudo; \
	  $$root apt-get update -qq && $$root apt-get install -y -qq --no-install-recommends chromium; } \
	  || { echo "Chromium could not be installed; install it by hand, or name it: IBCB_CHROMIUM=/path/to/chromium"; exit 1; }
	@touch $@

docs: $(VENV)/docs ## the documentation as a site in ./site, without network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo site/index.html

$(VENV)/docs: $(VENV)/user
	$(PIP) install -c pins.txt -e '.[docs]'
	@touch $@

lint: $(VENV)/developer ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/developer ## let ruff format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/developer ## the paper's figures beside ours, and ratios of running times
	$(THREADS) $(BIN)/python benchmarks/accuracy.py
	$(THREADS) $(BIN)/python benchmarks/baselines.py
	$(THREADS) $(BIN)/python benchmarks/logs.py
	$(BIN)/python benchmarks/scale.py --quick
	$(THREADS) $(BIN)/python benchmarks/forecast.py
	$(THREADS) $(BIN)/python benchmarks/uncertainty.py
	$(THREADS) $(BIN)/python benchmarks/units.py
	$(THREADS) $(BIN)/python benchmarks/rewards.py
	$(BIN)/python benchmarks/travel.py
	$(THREADS) $(BIN)/python benchmarks/dirty.py
	$(THREADS) $(BIN)/python benchmarks/selection.py
	$(THREADS) $(BIN)/python benchmarks/foreign.py
	$(THREADS) $(BIN)/python benchmarks/verdicts.py
	$(THREADS) $(BIN)/python benchmarks/deciders.py
	$(THREADS) $(BIN)/python benchmarks/crosses.py
	$(THREADS) $(BIN)/python benchmarks/arms.py
	$(THREADS) $(BIN)/python benchmarks/updates.py
	$(THREADS) $(BIN)/python benchmarks/propensities.py
	$(THREADS) $(BIN)/python benchmarks/soak.py --minutes 2
	$(THREADS) $(BIN)/python benchmarks/fuzz.py --minutes 0.5

results: $(VENV)/developer ## the paper's 20 tables again, for hours; goes on where it stopped. Needs IBCB_ML100K
	$(THREADS) $(BIN)/ibcb reproduce --all --seeds 5 --jobs 2 --results docs/results.jsonl --page docs/results.md

wheel: $(VENV)/developer ## build the wheel into dist/
	$(BIN)/python -m build --wheel --outdir dist .

clean: ## remove the environment and all that was built
	rm -rf $(VENV) .versions dist build site ibcb-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
