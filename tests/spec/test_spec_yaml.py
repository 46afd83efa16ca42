"""Every loop in `spec/` compiles as its fence claims, and a test runs every fenced block."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from spec.blocks import CHAPTERS, Block, blocks, is_taken, parameters, take, text_of

from llc.frontend.compile import compile_text
from llc.frontend.source.files import text_source
from llc.ir.diagnostics import CompileError, Diagnostic
from llc.runtime.effects.script_reader import read_world

TESTS = Path(__file__).parents[1]
# Kinds of blocks that no test runs, with the reason. There are none.
INERT: dict[str, str] = {}

# Commands in these chapters read the files above them, valid or not;
# `diagnostics.md` has a test of its own.
PROJECTS = ("cli.md", "diagnostics.md", "linking.md", "testing.md")
YAML = [block for chapter in CHAPTERS if chapter not in PROJECTS for block in take(chapter, "yaml")]
WORLDS = [block for block in YAML if block.info == "world"]
# The info of a block is the path of a file of a project, or names a part of a program.
LOOPS = [block for block in YAML if block.info not in ("world", "program") and "/" not in block.info]


def findings(text: str) -> list[Diagnostic]:
    try:
        return list(compile_text(text).diagnostics)
    except CompileError as error:
        return list(error.diagnostics)


@pytest.mark.parametrize("block", parameters(LOOPS))
def test_a_loop_compiles_as_its_fence_claims(block: Block) -> None:
    """`error=id` and `warning=id` claim one diagnostic on the marked line; other loops have none."""
    found = findings(block.text)
    if block.info in ("", "loop"):
        assert found == []
        return
    severity, _, id = block.info.partition("=")
    (finding,) = found
    assert (finding.severity, finding.id) == (severity, id)
    assert finding.span is not None
    assert "# <-" in block.text.split("\n")[finding.span.line - 1]


@pytest.mark.parametrize("block", parameters(WORLDS))
def test_a_world_is_a_script(block: Block) -> None:
    """A block `yaml world` is a valid file for `llc run --script`."""
    read_world(text_source(block.text)).close()


def test_every_block_is_run() -> None:
    """A test module takes each fenced block of each chapter and runs it."""
    for path in sorted(TESTS.glob("*/test_*_spec.py")):
        name = f"llc_taking_{path.stem}"
        found = importlib.util.spec_from_file_location(name, path)
        assert found is not None
        assert found.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
    left = [block for chapter in CHAPTERS for block in blocks(chapter) if not is_taken(block)]
    assert [f"{block.chapter}:{block.line}: {block.kind}" for block in left if block.kind not in INERT] == []


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_fence_is_read(chapter: str) -> None:
    """No fence is indented, unclosed or inside another."""
    fences = [line for line in text_of(chapter).splitlines() if line.lstrip().startswith(("```", "~~~"))]
    assert len(fences) == 2 * len(blocks(chapter))
