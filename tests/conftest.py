"""Shared by all tests: the `--update` switch for golden files, and how properties are tried."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from llc.ir import records

# Assignment to a field of a frozen record fails in every test.
records.freeze()

# A law holds or it does not, however busy the machine is.
settings.register_profile("llc", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("llc")


# The ledger of the user who runs the tests is not touched. Not in the system's folder for temporary files by
# name: two runs of the tests do not share it.
os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="llc-data-")
atexit.register(shutil.rmtree, os.environ["XDG_DATA_HOME"], ignore_errors=True)

# For root, agents are started as for any other user.
os.environ["IS_SANDBOX"] = "1"

# Started in the background of a script we ignore Ctrl-C, and so would each llc that a test interrupts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite golden files instead of comparing")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--update"))
