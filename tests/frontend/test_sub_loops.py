"""Loops as states of other loops: file lookup, arguments and errors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import llc
from llc.frontend.compile import compile_file
from llc.frontend.loop.fsm_printer import print_fsm
from llc.ir.diagnostics import CompileError, Diagnostic
from llc.ir.text import print_program

CHILD = """\
name: child
initial: say
context: {a: 1, b: two}
states:
  say: {action: "echo ${context.a} ${context.b}", capture: said, next: done}
  done: {terminal: true}
"""


def parent(more: str, states: str = "") -> str:
    return f"""\
name: parent
initial: run
states:
  run: {{{more}, on_yes: done, on_no: failed}}
{states}  done: {{terminal: true}}
  failed: {{terminal: true, status: failure}}
"""


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / ".loops" / (name.replace("__", "/") + ".yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / ".loops" / "parent.yaml"


def only_error(path: Path) -> Diagnostic:
    """The only error of a loop."""
    with pytest.raises(CompileError) as error:
        compile_file(str(path))
    (diagnostic,) = [diagnostic for diagnostic in error.value.diagnostics if diagnostic.is_error]
    return diagnostic


def file_and_line(diagnostic: Diagnostic) -> tuple[str, int]:
    assert diagnostic.span is not None
    return Path(diagnostic.span.path).name, diagnostic.span.line


def output_of_show(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Output of the state `show` of a loop."""
    monkeypatch.chdir(path.parents[1])
    assert llc.run("parent").status == "success"
    return Path("shown.txt").read_text().strip()


NEVER_SUCCEEDS = "say: {action: exit 1, on_yes: done, on_no: say}"
SHOW = '  show: {action: "echo %s >shown.txt", next: done}\n'


@pytest.mark.parametrize("name", ["child", "child.yaml", "deep/child", '"${context.which}"'])
def test_child_loop_lookup(name: str, tmp_path: Path) -> None:
    """By name, in a folder, and by a constant variable."""
    text = parent(f"loop: {name}") + "context: {which: deep/child}\n"
    program = compile_file(str(write(tmp_path, parent=text, child=CHILD, deep__child=CHILD))).program
    assert [inner.name for inner in program.meta.loops] == ["child"]


def test_constants_and_data_are_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant is the author's text; a value computed at run time is quoted."""
    text = parent('loop: child, with: {a: "$((1 + 2))", b: "${env.WHAT}"}').replace(
        "on_yes: done", "on_yes: show"
    )
    text += SHOW % "${captured.run.said.output}"
    monkeypatch.setenv("WHAT", "$(echo code)")
    path = write(tmp_path, parent=text, child=CHILD)
    assert output_of_show(path, monkeypatch) == "3 $(echo code)"


def test_context_passthrough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Context and captures are passed; the child's own context takes precedence."""
    child = CHILD.replace("context: {a: 1, b: two}", "context: {a: 1}").replace(
        "${context.a}", "${context.a} ${context.c}"
    )
    text = (
        parent(
            "loop: child, context_passthrough: true",
            '  first: {action: "echo seen", capture: c, next: run}\n',
        )
        .replace("initial: run", "initial: first\ncontext: {a: 9, b: from above}")
        .replace("on_yes: done", "on_yes: show")
    ) + SHOW % "${captured.run.said.output}"
    path = write(tmp_path, parent=text, child=child)
    assert output_of_show(path, monkeypatch) == "1 seen from above"


@pytest.mark.parametrize(
    ("child", "route", "expected"),
    [
        ("say: {action: exit 1, on_yes: done, on_no: bad}", "on_no: show", "terminal bad"),
        (f"{NEVER_SUCCEEDS}\nmax_iterations: 2", "on_timeout: show", "max_iterations"),
        (f"{NEVER_SUCCEEDS}\nmax_iterations: 2", "on_no: show", "max_iterations"),
        ("say: {action: exit 1, on_yes: done}", "on_error: show", "error"),
        ("say: {action: exit 1, on_yes: done}", "on_no: show", "error"),
        ("say: {action: sleep 60, next: done}\ntimeout: 0.1", "on_timeout: show", "timeout"),
    ],
)  # fmt: skip
def test_outcome_of_child_is_a_verdict(
    child: str, route: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal state, a limit, an error."""
    states, _, settings = child.partition("\n")
    ends = "  done: {terminal: true}\n  bad: {terminal: true, status: failure}\n"
    inner = f"name: child\ninitial: say\n{settings}\nstates:\n  {states}\n{ends}"
    text = f"name: parent\ninitial: run\nstates:\n  run: {{loop: child, on_yes: done, {route}}}\n"
    text += (
        SHOW % "${captured.run.terminated_by} ${captured.run.failure_terminal?}"
        + "  done: {terminal: true}\n"
    )
    assert output_of_show(write(tmp_path, parent=text, child=inner), monkeypatch) == expected


def test_timeout_of_parent_ends_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the child has no limit and routes its errors."""
    child = CHILD.replace("action:", "on_error: done, timeout: 300, action:").replace(
        "echo", "sleep 100; echo"
    )
    path = write(tmp_path, parent=parent("loop: child") + "timeout: 0.2\n", child=child)
    monkeypatch.chdir(path.parents[1])
    outcome = llc.run("parent")
    assert (outcome.status, outcome.terminated_by) == ("limit", "timeout")


@pytest.mark.parametrize(
    ("more", "id", "line"),
    [
        ("loop: chidl", "file-not-found", 4),
        ("loop: parent", "circular-run", 4),
        ("loop: ../out/child", "outside-project", 4),
        ("loop: linked", "outside-project", 4),
        ("loop: [child]", "wrong-type", 4),
        ("loop: child, with: [a]", "wrong-type", 4),
        ("loop: child, with: {c: 1}", "unknown-context", 4),
        ("loop: strict, with: {count: many}", "wrong-type", 4),
        ("loop: strict, with: {other: 1}", "missing-argument", 4),
        ("loop: child, action: 'true'", "action-and-call", 4),
        ("loop: bad", "unknown-state", 3),
        ("budget: {usd: 1}, loop: asks", "unbounded-budget", 4),
    ],
)
def test_wrong_use_is_one_error(more: str, id: str, line: int, tmp_path: Path) -> None:
    """The error is at the line that causes it; an error in the child is reported in its file."""
    strict = CHILD + "parameters: {count: {type: integer, required: true}, other: {type: string}}\n"
    bad = CHILD.replace("name: child\ninitial: say", "name: child\n\ninitial: sya")
    asks = CHILD.replace("echo ${context.a} ${context.b}", "/fix")
    path = write(tmp_path, parent=parent(more), child=CHILD, strict=strict, bad=bad, asks=asks)
    outside = write(tmp_path / "out", parent=CHILD).rename(tmp_path / "out" / "child.yaml")
    os.symlink(outside, path.parent / "linked.yaml")
    diagnostic = only_error(path)
    assert diagnostic.id == id
    assert file_and_line(diagnostic) == ("bad.yaml" if id == "unknown-state" else "parent.yaml", line)


def test_printed_loop_reads_back(tmp_path: Path) -> None:
    """With the arguments of the child."""
    path = write(tmp_path, parent=parent('loop: child, with: {a: 2, b: "${env.B}"}, timeout: 5'), child=CHILD)
    compiled = compile_file(str(path))
    assert compiled.loop is not None
    path.write_text(print_fsm(compiled.loop))
    again = compile_file(str(path))
    assert (
        print_program(again.program).partition("source 0")[0]
        == print_program(compiled.program).partition("source 0")[0]
    )
    assert again.loop is not None
    assert again.loop.states["run"].bindings == compiled.loop.states["run"].bindings


def test_cycle_of_loops_is_one_error(tmp_path: Path) -> None:
    """The error is at the line that closes the cycle."""
    middle = parent("loop: deep/last").replace("name: parent", "name: middle")
    last = parent("loop: parent").replace("name: parent", "name: last")
    diagnostic = only_error(write(tmp_path, parent=parent("loop: middle"), middle=middle, deep__last=last))
    assert diagnostic.id == "circular-run"
    assert file_and_line(diagnostic) == ("last.yaml", 4)
    assert "parent.yaml → " in diagnostic.message
