"""The garbage collector is paused during large allocations and restored afterwards."""

from __future__ import annotations

import contextlib
import gc

import pytest

from llc.ir.python_internals import CollectorRests


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_state_is_restored(collects: bool) -> None:
    """Whether it ran before or not, and after an error too."""
    was = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with contextlib.suppress(KeyError), CollectorRests():
            with CollectorRests():
                assert not gc.isenabled()
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() is collects
    finally:
        (gc.enable if was else gc.disable)()
