"""`llc import`: loops of little-loops, rewritten with llc's keys and the same meaning (`spec/dialect.md`)."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llc.frontend.compile import compile_file, compile_text
from llc.frontend.loop.importer import import_loop
from llc.frontend.source.files import text_source
from llc.ir.compile_options import CompileOptions
from llc.ir.diagnostics import CompileError
from llc.ir.nodes import Program

from .test_little_loops import needs_little_loops, shipped

Llc = Callable[..., subprocess.CompletedProcess[str]]
DIALECT = CompileOptions(dialect="little-loops")
LOOP = """\
# A loop.
name: x          # its name
category: quality
weird: [1, 2]    # of a tool of ours
initial: check
max_iterations: 9
session_mode: fresh
states:
  # What is looked at.
  check:
    action: ./check.sh     # may fail
    next: judge
    on_error: failed       # to the end
  judge: {action_type: prompt, action: "is it good?", evaluate: {type: classify, path: x}, on_yes: done, agent: me, on_no: count}
  count:
    action: ls | wc -l
    evaluate:
      type: output_numeric
      operator: lt
      target: 3
    route: {yes: done, no: $current}
    on_error: failed
  empty: {evaluate: {type: output_contains, pattern: a}, on_yes: done, on_no: failed}
  done: {terminal: true, action: echo bye}
  failed:
    terminal: true
    # Why it failed.
    action: |
      echo x

      echo y
  lost: {terminal: true, failure: true}
"""  # noqa: E501 -- one state is in one line


def same(text: str, path: str = "x.yaml") -> tuple[str, Program, Program]:
    """A text imported, the program of the original under the dialect, and the one of the result."""
    made = import_loop(text_source(text, path))
    assert not made.is_refused
    old = compile_text(text, path, DIALECT).program
    new = compile_text(made.text, path).program
    return made.text, attrs.evolve(old, sources=()), attrs.evolve(new, sources=())


def test_the_result_means_the_same_without_the_dialect() -> None:
    text, old, new = same(LOOP)
    assert old == new
    assert "dialect" not in text
    assert "on_yes" not in text


def test_comments_and_what_does_not_change_stay() -> None:
    """Each comment is there, in order; a key that only little-loops knows is a comment now."""
    text, _, _ = same(LOOP)
    comments = [line.partition("#")[2] for line in LOOP.splitlines() if "#" in line]
    at = 0
    for comment in comments:
        at = text.index(comment, at)
    assert "# weird: [1, 2]    # of a tool of ours" in text
    assert "action: ./check.sh     # may fail" in text


def test_an_imported_file_is_not_changed_again() -> None:
    text, _, _ = same(LOOP)
    assert import_loop(text_source(text)).text == text


def test_what_cannot_be_written_out_keeps_the_dialect() -> None:
    """A state described by an alias has the place of its anchor."""
    text = (
        "name: x\ninitial: a\nstates:\n"
        "  a: {action: exit 1, on_yes: a, on_no: failed}\n  failed: &f {terminal: true}\n  done: *f\n"
    )
    made = import_loop(text_source(text))
    assert "not-imported" in {finding.id for finding in made.decisions}
    assert "dialect: little-loops" in made.text
    result = attrs.evolve(compile_text(made.text).program, sources=())
    assert result == attrs.evolve(compile_text(text, options=DIALECT).program, sources=())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "- a",
        "a: [",
        "name: x",
        "name: x\nstates: {a: 3}",
        "states: {}\ninitial: a",
        "name: x\nimport: [gone.yaml]\ninitial: a\nstates: {a: {fragment: f}}",
        "name: x\ninitial: a\nstates: {a: {action_type: magic, action: x}}",
        "fragments: 3",
    ],
)
def test_what_is_no_loop_is_refused_unchanged(text: str) -> None:
    made = import_loop(text_source(text))
    assert made.is_refused
    assert made.text == text


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "x", "initial": "a", "states": {"a": {"action": "ls", "next": "d", "on_error": "failed"},'
        ' "d": {"terminal": true}, "failed": {"terminal": true, "action": "x"}}}',
        LOOP.replace("\n", "\r\n"),
        LOOP.replace(
            "states:\n", "states:\n" + "".join(f"  s{n}: {{action: ls, next: done}}\n" for n in range(500))
        ),
    ],
    ids=["json", "crlf", "many states"],
)
def test_other_layouts(text: str) -> None:
    _, old, new = same(text)
    assert old == new


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(LOOP.splitlines(keepends=True)), max_size=30),
    st.integers(0, 900),
    st.text(max_size=3),
)
def test_no_text_breaks_it(lines: list[str], at: int, more: str) -> None:
    """Mixed lines and characters are refused, or imported to something that still compiles."""
    for text in ("".join(lines), LOOP[:at] + more + LOOP[at:], LOOP[:at] + LOOP[at + 2 :]):
        made = import_loop(text_source(text))
        if made.is_refused:
            assert made.text == text
        else:
            try:
                old = attrs.evolve(compile_text(text, options=DIALECT).program, sources=())
            except CompileError:
                continue
            assert attrs.evolve(compile_text(made.text).program, sources=()) == old


PARENT = """\
name: base
# what all of them end with
states:
  check: {action: ./check.sh, next: done, on_error: failed}
  done: {terminal: true}
  failed: {terminal: true}
"""


def test_a_parent_is_imported_with_what_inherits_from_it(project_dir: Path, llc: Llc) -> None:
    """It is no loop by itself; what inherits from it means the same, and its comments are kept."""
    (project_dir / "loops").mkdir()
    (project_dir / "loops" / "base.yaml").write_text(PARENT)
    (project_dir / "loops" / "x.yaml").write_text("from: base\nname: x\ninitial: check\n")
    assert llc("import", "loops", "-o", "new/loops").returncode == 0
    text = (project_dir / "new" / "loops" / "base.yaml").read_text()
    assert "# what all of them end with" in text
    assert "initial" not in text
    old = compile_file(str(project_dir / "loops" / "x.yaml"), DIALECT).program
    new = compile_file(str(project_dir / "new" / "loops" / "x.yaml")).program
    assert attrs.evolve(old, sources=()) == attrs.evolve(new, sources=())


# --- the command ----------------------------------------------------------------------------------


def test_one_file_goes_to_standard_output(project_dir: Path, llc: Llc) -> None:
    (project_dir / "x.yaml").write_text(LOOP)
    done = llc("import", "x.yaml")
    assert done.returncode == 0
    assert done.stdout == import_loop(text_source(LOOP)).text
    assert "a loop has no key `weird`" in done.stderr
    assert (project_dir / "x.yaml").read_text() == LOOP


def test_files_in_place_and_in_a_folder(project_dir: Path, llc: Llc) -> None:
    """A folder keeps its structure; what is there already is not overwritten; a second time is no change."""
    (project_dir / "in" / "lib").mkdir(parents=True)
    (project_dir / "in" / "x.yaml").write_text(LOOP)
    (project_dir / "in" / "lib" / "common.yaml").write_text("fragments: {f: {action: ls, on_yes: done}}\n")
    assert llc("import", "in", "-o", "out").returncode == 0
    assert (
        project_dir / "out" / "lib" / "common.yaml"
    ).read_text() == "fragments: {f: {action: ls, on_success: done}}\n"
    again = llc("import", "in", "-o", "out")
    assert (again.returncode, "exists" in again.stderr) == (2, True)
    assert llc("import", "in", "--check").returncode == 1
    assert llc("import", "in", "--in-place").returncode == 0
    assert (project_dir / "in" / "x.yaml").read_text() == (project_dir / "out" / "x.yaml").read_text()
    assert llc("import", "in", "--check").returncode == 0
    assert llc("validate", "out/x.yaml").returncode == 0


def test_the_changes_as_a_difference_and_as_data(project_dir: Path, llc: Llc) -> None:
    (project_dir / "x.yaml").write_text(LOOP)
    difference = llc("import", "--diff", "x.yaml").stdout
    assert "+    on_success: judge" in difference
    (file,) = json.loads(llc("import", "--json", "x.yaml").stdout)["files"]
    assert (file["changed"], file["refused"], file["diff"]) == (True, False, difference)
    assert {finding["id"] for finding in file["decisions"]} >= {"unknown-key", "unused-key"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x.yaml", "-o", "o", "-i"], "exclude each other"),
        (["x.yaml", "y.yaml"], "add -o DIR or --in-place"),
        (["gone.yaml"], "gone.yaml"),
        (["empty"], "there are no loops in `empty`"),
        (["/dev/null"], "only loops in YAML are imported"),
        (["x.yaml", "sub/x.yaml", "-o", "o"], "would both become"),
        (["x.yaml", "-o", "file"], "file"),
        (["bad.yaml", "--in-place"], "1 refused"),
    ],
)
def test_wrong_use(words: list[str], message: str, project_dir: Path, llc: Llc) -> None:
    """One message, exit code 2, and nothing is written."""
    (project_dir / "sub").mkdir()
    (project_dir / "empty").mkdir()
    for name in ("x.yaml", "y.yaml", "sub/x.yaml"):
        (project_dir / name).write_text(LOOP)
    (project_dir / "bad.yaml").write_text("a: [")
    (project_dir / "file").write_text("")
    done = llc("import", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert (project_dir / "x.yaml").read_text() == LOOP
    assert not (project_dir / "o").exists()


@needs_little_loops
def test_the_loops_that_it_ships_mean_the_same(tmp_path: Path) -> None:
    """All that are accepted under the dialect compile to the same machine without it, imported together."""
    paths = shipped()
    root = min((path.parent for path in paths), key=lambda folder: len(folder.parts))
    # At the same place, which is part of a program that looks for a loop by a computed name.
    targets = [tmp_path / "loops" / path.relative_to(root) for path in paths]
    for path, target in zip(paths, targets, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text())
    wanted = {}
    for target in targets:
        with contextlib.suppress(CompileError):
            wanted[target] = compile_file(str(target), DIALECT).program
    refused = []
    for target in targets:
        text = target.read_text()
        made = import_loop(text_source(text, str(target)))
        refused += [target.stem] if made.is_refused else []
        comments = re.findall(r"^ *(#.*)$", text, re.M)
        assert not Counter(comments) - Counter(re.findall(r"^ *(#.*)$", made.text, re.M)), target.name
        target.with_suffix(".new").write_text(made.text)
    for target in targets:
        target.with_suffix(".new").replace(target)
    counts = {"same": 0, "kept": 0}
    for target, old in wanted.items():
        new = compile_file(str(target)).program
        assert attrs.evolve(old, sources=()) == attrs.evolve(new, sources=()), target.name
        counts["kept" if "\ndialect: little-loops" in target.read_text() else "same"] += 1
    print(counts, "refused:", refused)
    assert counts["same"] >= 93
    assert refused == ["cua-agent-desktop"]
