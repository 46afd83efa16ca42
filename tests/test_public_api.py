"""The public Python API: what `llc` exports, and the exceptions for arguments of the wrong type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import llc


def test_dir_lists_the_public_names() -> None:
    """`dir(llc)` is the public API, and each name can be imported."""
    assert dir(llc) == sorted(llc.__all__)
    assert all(getattr(llc, name) is not None for name in dir(llc))


def test_exceptions_of_evaluate_are_exported(tmp_path: Path) -> None:
    """A flow that calls `exit` raises `llc.Exited`; an effect without a scripted result `llc.NoRule`."""
    with pytest.raises(llc.Exited) as exited:
        llc.evaluate("(exit 3)")
    assert exited.value.code == 3
    script = tmp_path / "world.yaml"
    script.write_text("rules: []\n")
    with pytest.raises(llc.NoRule):
        llc.evaluate('(ask "ready?")', world=script)


@pytest.mark.parametrize("source", [5, None, b"(+ 1 2)", ["(+ 1 2)"]])
def test_non_text_program_is_an_error(source: Any) -> None:
    """`compile` and `evaluate` name the argument and its type."""
    kind = type(source).__name__
    with pytest.raises(TypeError, match=f"`source` is a text, not {kind}"):
        llc.evaluate(source)
    with pytest.raises(TypeError, match=f"`text` is a text, not {kind}"):
        llc.compile(source)
