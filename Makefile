# Main targets: `make demo` runs a loop on the bundled project, `make test` runs all tests.
# They need Python 3.11 or later and install everything else in .venv.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Without bytecode files, every test process would compile llc again.
unexport PYTHONDONTWRITEBYTECODE
# Two test processes per processor, because most runtime tests wait.
export PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))

.PHONY: demo quick test browser crash agents fuzz sim little-loops bench clean

$(BIN)/llc: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $(BIN)/llc

demo: $(BIN)/llc
	@PATH="$(abspath $(BIN)):$$PATH" sh examples/demo.sh

test: $(BIN)/llc
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

# All tests except the slow ones, which are listed in tests/slow.txt (written by `pytest -n auto --write-slow`).
quick: $(BIN)/llc
	$(BIN)/ruff check --quiet .
	$(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder -m "not slow"

# Browser tests of report pages; `make test` skips them if no browser is installed.
browser: $(BIN)/llc
	LLC_BROWSER="$${LLC_BROWSER:-chromium}" $(BIN)/python -m pytest tests/runtime/test_report_page.py

# The whole crash matrix: every kind of failure at every write, hundreds of random failures, and 50 concurrent
# processes. Takes about ten minutes.
crash: $(BIN)/llc
	LLC_CRASH=1 $(BIN)/python -m pytest tests/runtime/test_crash.py tests/runtime/test_crash_rich.py tests/runtime/test_crash_agents.py tests/runtime/test_agent_session_resume.py tests/runtime/test_damaged_journals.py tests/runtime/test_ledger.py tests/runtime/test_quota.py tests/database/test_soak.py

# Real agent programs in all test situations, including programs that start slowly. Takes about five minutes.
agents: $(BIN)/llc
	LLC_AGENTS=1 $(BIN)/python -m pytest tests/runtime/test_real_agents.py tests/runtime/test_first_contact.py

# Ten times as many examples of each law as `make test` tries, thousands of generated programs in both tiers (about
# ten minutes), then a million mutated loops.
fuzz: $(BIN)/llc
	LLC_LAWS=10 $(BIN)/python -m pytest -n auto -m hypothesis
	LLC_LAWS=10 $(BIN)/python -m pytest tests/ir/test_call_deadlines.py
	LLC_FUZZ=2000 $(BIN)/python -m pytest -n auto tests/vm -k "alike or wrong_operands"
	LLC_FUZZ=1000000 $(BIN)/python -m pytest -n auto tests/frontend/test_loop_mutations.py

# Ten minutes of complete runs on a simulated machine, then all mutants of the code that the simulation must detect.
sim: $(BIN)/llc
	cd tests && $(abspath $(BIN))/python -m simulation --seconds 480
	cd tests && $(abspath $(BIN))/python -m simulation --database --seconds 120
	cd tests && $(abspath $(BIN))/python -m simulation.mutants

# Compares llc with little-loops: runs the loops that little-loops ships with both programs, each in six scripted
# worlds. Takes about five minutes.
little-loops: $(BIN)/llc
	test -x .venv-little-loops/bin/python || $(PYTHON) -m venv .venv-little-loops
	.venv-little-loops/bin/python -m pip install --quiet --disable-pip-version-check little-loops==1.167.0
	LLC_LITTLE_LOOPS=$(abspath .venv-little-loops/bin/python) $(BIN)/python -m pytest -s tests/runtime/test_little_loops.py tests/runtime/test_import.py

bench: $(BIN)/llc
	$(BIN)/python benchmarks/run.py --peers

clean:
	rm -rf $(VENV) build dist *.egg-info
