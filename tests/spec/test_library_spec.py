"""`spec/library.md`: its blocks are the examples that `tests/frontend/test_library.py` runs."""

from __future__ import annotations

from spec.blocks import take

from llc.frontend.core.library import ROWS

BLOCKS = take("library.md", "sexp")


def test_the_blocks_are_the_examples_of_the_table() -> None:
    """One block for each name, in order, and every line an example."""
    assert len(BLOCKS) == len(ROWS)
    for block, row in zip(BLOCKS, ROWS, strict=True):
        expressions = [line.rpartition("  ; ")[0] for line in block.text.splitlines()]
        assert expressions == [expression for expression, _ in row.examples]
