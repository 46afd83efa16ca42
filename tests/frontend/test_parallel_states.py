"""`parallel:` of a state: concurrent loops and their combined verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

import llc
from llc.frontend.compile import compile_file
from llc.ir.diagnostics import CompileError

GOOD = """\
name: good
initial: a
context: {of: none}
states:
  a: {action: "echo ${context.of}", capture: said, next: b}
  b: {terminal: true}
"""
BAD = "name: bad\ninitial: a\nstates:\n  a: {terminal: true, status: failure}\n"
BROKEN = "name: broken\ninitial: a\nstates:\n  a: {action: exit 1, on_yes: b}\n  b: {terminal: true}\n"
# Each loop waits for the other, so they end only if they run concurrently.
MEETING = (
    "name: {0}\ninitial: a\nstates:\n"
    "  a: {{action: 'touch {0}.here; until test -e {1}.here; do sleep 0.05; done', next: b}}\n"
    "  b: {{terminal: true}}\n"
)
SLOW = "name: slow\ninitial: a\nstates:\n  a: {action: sleep 100, next: b}\n  b: {terminal: true}\n"
LOOPS = {"good": GOOD, "bad": BAD, "broken": BROKEN, "slow": SLOW, "x": MEETING.format("x", "y")}
LOOPS["y"] = MEETING.format("y", "x")


def parent(keys: str, show: str = "") -> str:
    return f"""\
name: parent
initial: run
context: {{kept: data}}
states:
  run:
    {keys}
    on_yes: show
    on_no: failed
    on_error: odd
  show: {{action: "echo {show} >shown", next: done}}
  done: {{terminal: true}}
  failed: {{terminal: true, status: failure}}
  odd: {{terminal: true, status: failure}}
"""


def write(folder: Path, keys: str, show: str = "") -> Path:
    (folder / ".loops").mkdir()
    for name, text in {**LOOPS, "parent": parent(keys, show)}.items():
        (folder / ".loops" / f"{name}.yaml").write_text(text)
    return folder / ".loops" / "parent.yaml"


@pytest.mark.parametrize(
    ("keys", "end"),
    [
        ("parallel: [good]", "done"),
        ("parallel: [good, bad]", "failed"),
        ("{parallel: [good, bad], join: any}", "done"),
        ("{parallel: [bad, broken], join: any}", "failed"),
        ("{parallel: [good, bad, x, y], join: 3}", "done"),
        ("{parallel: [good, bad, broken], join: 2}", "failed"),
        ("{parallel: [x, y]}", "done"),
        ("{parallel: [good, slow], timeout: 1}", "failed"),
    ],
)
def test_verdict_of_branches(keys: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict depends on the number of successes; a faulting branch failed, and the timeout of the state
    ends all branches.
    """
    lines = keys.strip("{}").replace("], ", "]\n    ")
    write(tmp_path, lines)
    monkeypatch.chdir(tmp_path)
    assert llc.run("parent").final_state == end


def test_arguments_and_captures_of_branches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = 'parallel: [good, broken]\n    join: any\n    with: {of: "${context.kept}"}'
    show = "${captured.run.good.said.output} ${captured.run.broken.status} ${captured.run.terminated_by}"
    write(tmp_path, keys, show)
    monkeypatch.chdir(tmp_path)
    assert llc.run("parent").status == "success"
    assert (tmp_path / "shown").read_text() == "data error branches\n"


@pytest.mark.parametrize(
    ("keys", "id", "line"),
    [
        ("parallel: [good, nowhere]", "file-not-found", 6),
        ("parallel: [good, parent]", "circular-run", 6),
        ("parallel: [good, good]", "duplicate-name", 6),
        ("parallel: [good]\n    join: 2", "out-of-range", 7),
        ("parallel: [good]\n    join: most", "unknown-value", 7),
        ("parallel: []", "empty-list", 6),
        ("parallel: good", "wrong-type", 6),
        ("parallel: [good]\n    loop: bad", "action-and-call", 6),
        ("parallel: [good]\n    action: ls", "action-and-call", 6),
        ('parallel: ["${captured.show.output}"]', "unknown-loop", 6),
    ],
)
def test_errors_in_branches(keys: str, id: str, line: int, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as error:
        compile_file(str(write(tmp_path, keys)))
    (diagnostic,) = (finding for finding in error.value.diagnostics if finding.is_error)
    assert diagnostic.span is not None
    assert (diagnostic.id, Path(diagnostic.span.path).name, diagnostic.span.line) == (
        id,
        "parent.yaml",
        line,
    ), diagnostic.message


def test_join_without_branches_is_unused(tmp_path: Path) -> None:
    made = compile_file(str(write(tmp_path, "action: ls\n    join: any")))
    assert "unused-key" in {diagnostic.id for diagnostic in made.diagnostics}
