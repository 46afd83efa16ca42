"""The garbage collector is paused during large allocations and restored afterwards."""

from __future__ import annotations

import contextlib
import gc

import pytest

from llc.ir.python_internals import CollectorRests


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_state_is_restored(is_enabled: bool) -> None:
    """Whether it was enabled or not, also after an error."""
    was = gc.isenabled()
    (gc.enable if is_enabled else gc.disable)()
    try:
        with contextlib.suppress(KeyError), CollectorRests():
            with CollectorRests():
                assert not gc.isenabled()
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() is is_enabled
    finally:
        (gc.enable if was else gc.disable)()
