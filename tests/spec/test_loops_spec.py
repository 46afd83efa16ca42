"""`spec/loops.md`: its tables and expanded paradigms match the code. `test_spec_yaml` tests its loops."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from spec.blocks import text_of
from spec.tables import compare, keys

from llc.frontend.compile import compile_text
from llc.frontend.loop import agent_schema, dialect_schema, evaluator_schema, hook_schema, paradigms, schema
from llc.frontend.loop.evaluator_schema import Evaluator
from llc.frontend.loop.fsm_printer import print_fsm
from llc.frontend.loop.schema import LoopSettings

ROOT = Path(__file__).parents[2]
TEXT = text_of("loops.md")
MADE = re.compile(r"```yaml[^\n]*\n(paradigm:.*?)```\n\nbecomes\n\n```yaml[^\n]*\n(.*?)```", re.DOTALL)
# Modules that report diagnostics about files, keys and states; other chapters list the other ids.
MODULES = [*(ROOT / "frontend" / "source").glob("[!x]*.py"), *(ROOT / "frontend" / "loop").glob("*.py")]


def test_expanded_paradigms_match_the_compiler() -> None:
    """The block after *becomes* is the output of `--emit fsm` for the block before."""
    pairs = MADE.findall(TEXT)
    assert len(pairs) == 5
    for written, made in pairs:
        assert print_fsm(compile_text(written).loop) == made.replace("    # <-", "")


def test_tables_are_printed_from_the_schema(update: bool) -> None:
    """The tables of keys are generated from the classes."""

    def lines_of(name: str) -> list[str]:
        homes = (schema, agent_schema, evaluator_schema, hook_schema, paradigms)
        cls = next(getattr(home, name) for home in homes if hasattr(home, name))
        shared = (LoopSettings, evaluator_schema.OutputEvaluator, Evaluator)
        if cls in (LoopSettings, schema.StateSpec):
            theirs = dialect_schema.STATE_KEYS if cls is schema.StateSpec else dialect_schema.LOOP_KEYS
            return [line for line in keys(cls) if not line.startswith(tuple(f"| `{key}` " for key in theirs))]
        return keys(cls, next((base for base in shared if issubclass(cls, base) and cls is not base), None))

    compare("loops.md", lines_of, update)


def test_every_evaluator_is_in_a_chapter() -> None:
    """`spec/loops.md`, or `spec/dialect.md` for those of little-loops, names every evaluator."""
    text = TEXT + text_of("dialect.md")
    assert [name for name in evaluator_schema.EVALUATORS if f"`{name}`" not in text] == []


def test_every_diagnostic_is_listed() -> None:
    """The table lists exactly the ids that the code uses."""
    listed = set(
        re.findall(
            r"`([a-z0-9-]+)`", "".join(re.findall(r"^\|(.*?)\|", TEXT.partition("## Diagnostics")[2], re.M))
        )
    )
    given = set()
    for module in MODULES:
        tree = ast.parse(module.read_text("utf-8"))
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
        for call in calls:
            name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
            first = call.args[0]
            if name in ("Diagnostic", "_warning", "error", "warn", "fail", "refuse") and isinstance(
                first, ast.Constant
            ):
                given.add(first.value)
    assert listed == given - {"too-many-items"}  # of other files
