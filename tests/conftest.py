"""Fixtures and settings of all tests: the `--update` option for golden files, Hypothesis, slow tests.

`slow.txt` lists the test functions that take longer than `SLOW_SECONDS`, all parameters together; they get
the marker `slow`, and `make quick` omits them. `pytest -n auto --write-slow` writes the list. A file name in
the list, added by hand, means all its tests: the first one to run would pay for their shared fixture.
"""

from __future__ import annotations

import atexit
import functools
import gc
import os
import re
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest
from hypothesis import HealthCheck, settings
from laws import tried

from llc.ir import records

# Collecting the tests makes many objects and hardly any garbage; `pytest_collection_finish` enables it again.
gc.disable()

# Assignment to a field of a frozen record fails in every test.
records.freeze()

# Laws hold at any speed of the machine, so there are no deadlines.
settings.register_profile(
    "llc", max_examples=tried(50), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("llc")


# Tests do not touch the ledger of the user who runs them. The folder has a unique name, so that concurrent
# test runs do not share it.
os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="llc-data-")
atexit.register(shutil.rmtree, os.environ["XDG_DATA_HOME"], ignore_errors=True)

# Lets agents start for root as for any other user.
os.environ["IS_SANDBOX"] = "1"

# A background process of a script ignores Ctrl-C, and so would each llc that a test interrupts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


ROOT = Path(__file__).parents[1]
SLOW = Path(__file__).with_name("slow.txt")
# The files with the longest tests, which run first: started last by `pytest -n`, they would end last.
LONGEST = (
    "tests/runtime/test_real_agents.py",
    "tests/runtime/test_crash.py",
    "tests/test_benchmarks.py",
    "tests/database/test_outages.py",
    "tests/runtime/test_first_contact.py",
    "tests/database/test_workspace.py",
    "tests/runtime/test_mcp.py",
    "tests/runtime/test_ledger.py",
    "tests/database/test_parking.py",
    "tests/runtime/test_crash_agents.py",
    "tests/runtime/test_report_page.py",
    "tests/vm/test_jit.py",
    "tests/database/test_worker.py",
    "tests/runtime/test_keeper.py",
    "tests/runtime/test_quota.py",
    "tests/simulation/test_simulation.py",
    "tests/simulation/test_cluster.py",
    "tests/database/test_views.py",
    "tests/database/test_survivors.py",
    "tests/database/test_machines.py",
    "tests/database/test_schema.py",
    "tests/runtime/test_agent_session_resume.py",
    "tests/runtime/test_acp.py",
    "tests/runtime/test_background.py",
    "tests/runtime/test_task_command.py",
    "tests/runtime/test_task_runs.py",
    "tests/vm/test_library_laws.py",
    "tests/vm/test_primitives.py",
    "tests/vm/test_jit_optimizations.py",
)
SLOW_SECONDS = 0.1
_seconds: Counter[str] = Counter()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-slow", action="store_true", help="write the list of slow tests")
    parser.addoption("--update", action="store_true", help="rewrite golden files instead of comparing")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file whose tests are all deselected."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    file = collection_path.relative_to(ROOT).as_posix()
    names = re.findall(r"^def (test_\w+)\(", collection_path.read_text("utf-8"), re.MULTILINE)
    is_slow = file in _slow() or (names and all(f"{file}::{name}" in _slow() for name in names))
    return True if is_slow else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _function(item.nodeid) in _slow() or item.nodeid.partition("::")[0] in _slow():
            item.add_marker(pytest.mark.slow)
    positions = {path: position for position, path in enumerate(LONGEST)}
    items.sort(key=lambda item: positions.get(item.nodeid.partition("::")[0], len(positions)))


def pytest_collection_finish() -> None:
    """The collected tests stay: the garbage collector need not visit them."""
    gc.freeze()
    gc.enable()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[_function(report.nodeid)] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the list; tests that did not run but still exist are kept."""
    if session.config.getoption("--write-slow") and not hasattr(session.config, "workerinput"):
        kept = [name for name in SLOW.read_text().split() if name not in _seconds and _exists(name)]
        slow = [name for name, seconds in _seconds.items() if seconds > SLOW_SECONDS]
        SLOW.write_text("".join(f"{name}\n" for name in sorted({*kept, *slow})))


@functools.cache
def _slow() -> frozenset[str]:
    return frozenset(SLOW.read_text().split())


def _function(nodeid: str) -> str:
    """Id of a test without its parameters."""
    return nodeid.partition("[")[0]


def _exists(name: str) -> bool:
    path, _, function = name.partition("::")
    file = SLOW.parents[1] / path
    return file.exists() and (not function or f"def {function}(" in file.read_text())


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether to rewrite golden files."""
    return bool(request.config.getoption("--update"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a PostgreSQL server. Tests that need it fail without it; they are never skipped."""
    named = os.environ.get("LLC_TEST_DATABASE_URL")
    if named:
        yield named
        return
    server = postgres.Server()
    yield server.url("postgres")
    server.close()


@pytest.fixture
def own_server() -> Iterator[postgres.Server]:
    """A server that the test may stop and restart."""
    server = postgres.Server()
    yield server
    server.close()


@pytest.fixture
def empty_database(postgres_server: str) -> str:
    """URL of a database without tables."""
    return postgres.new_database(postgres_server)


@pytest.fixture
def database(postgres_server: str) -> str:
    """URL of a database with the tables of a cluster."""
    return postgres.cluster_database(postgres_server)
