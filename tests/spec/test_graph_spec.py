"""`spec/graph.md`: its command prints the shown diagram."""

from __future__ import annotations

from pathlib import Path

from spec.blocks import Shell, take

BLOCKS = take("graph.md", "console")


def test_the_command_prints_the_shown_output(tmp_path: Path) -> None:
    """The diagram of a loop of the paradigm `goal`."""
    (tmp_path / ".loops").mkdir()
    (tmp_path / ".loops" / "tests.yaml").write_text(
        "name: tests\nparadigm: goal\ngoal: The tests pass.\n"
        'tools: ["pytest -q", {prompt: "make tests pass"}]\n'
    )
    Shell(tmp_path).follow(BLOCKS, lambda text: text.strip("\n"))
