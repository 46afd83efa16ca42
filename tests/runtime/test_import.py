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

from .test_little_loops import needs_little_loops, shipped_loops

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


def import_and_compile(text: str, path: str = "x.yaml") -> tuple[str, Program, Program]:
    """Import a text; return the result, the program of the original and the program of the result."""
    imported = import_loop(text_source(text, path))
    assert not imported.is_refused
    old = compile_text(text, path, DIALECT).program
    new = compile_text(imported.text, path).program
    return imported.text, attrs.evolve(old, sources=()), attrs.evolve(new, sources=())


def test_imported_loop_compiles_to_the_same_program() -> None:
    text, old, new = import_and_compile(LOOP)
    assert old == new
    assert "dialect" not in text
    assert "on_yes" not in text


def test_comments_and_unchanged_lines_are_kept() -> None:
    """Each comment is kept, in order; a key that only little-loops has becomes a comment."""
    text, _, _ = import_and_compile(LOOP)
    comments = [line.partition("#")[2] for line in LOOP.splitlines() if "#" in line]
    offset = 0
    for comment in comments:
        offset = text.index(comment, offset)
    assert "# weird: [1, 2]    # of a tool of ours" in text
    assert "action: ./check.sh     # may fail" in text


def test_second_import_changes_nothing() -> None:
    text, _, _ = import_and_compile(LOOP)
    assert import_loop(text_source(text)).text == text


def test_loop_that_cannot_be_rewritten_keeps_the_dialect() -> None:
    """A state that is a YAML alias has the span of its anchor."""
    text = (
        "name: x\ninitial: a\nstates:\n"
        "  a: {action: exit 1, on_yes: a, on_no: failed}\n  failed: &f {terminal: true}\n  done: *f\n"
    )
    imported = import_loop(text_source(text))
    assert "not-imported" in {diagnostic.id for diagnostic in imported.decisions}
    assert "dialect: little-loops" in imported.text
    result = attrs.evolve(compile_text(imported.text).program, sources=())
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
def test_invalid_loop_is_refused_unchanged(text: str) -> None:
    imported = import_loop(text_source(text))
    assert imported.is_refused
    assert imported.text == text


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
    _, old, new = import_and_compile(text)
    assert old == new


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(LOOP.splitlines(keepends=True)), max_size=30),
    st.integers(0, 900),
    st.text(max_size=3),
)
def test_mixed_text_is_refused_or_imported(lines: list[str], offset: int, inserted: str) -> None:
    """Mixed lines and characters are refused, or the import still compiles to the same program."""
    for text in (
        "".join(lines),
        LOOP[:offset] + inserted + LOOP[offset:],
        LOOP[:offset] + LOOP[offset + 2 :],
    ):
        imported = import_loop(text_source(text))
        if imported.is_refused:
            assert imported.text == text
        else:
            try:
                old = attrs.evolve(compile_text(text, options=DIALECT).program, sources=())
            except CompileError:
                continue
            assert attrs.evolve(compile_text(imported.text).program, sources=()) == old


PARENT = """\
name: base
# terminal states of all children
states:
  check: {action: ./check.sh, next: done, on_error: failed}
  done: {terminal: true}
  failed: {terminal: true}
"""


def test_parent_is_imported_with_its_children(project_dir: Path, llc: Llc) -> None:
    """It is not a loop by itself; its children keep their meaning, and its comments are kept."""
    (project_dir / "loops").mkdir()
    (project_dir / "loops" / "base.yaml").write_text(PARENT)
    (project_dir / "loops" / "x.yaml").write_text("from: base\nname: x\ninitial: check\n")
    assert llc("import", "loops", "-o", "new/loops").returncode == 0
    text = (project_dir / "new" / "loops" / "base.yaml").read_text()
    assert "# terminal states of all children" in text
    assert "initial" not in text
    old = compile_file(str(project_dir / "loops" / "x.yaml"), DIALECT).program
    new = compile_file(str(project_dir / "new" / "loops" / "x.yaml")).program
    assert attrs.evolve(old, sources=()) == attrs.evolve(new, sources=())


# --- the command --------------------------------------------------------------------------------


def test_one_file_is_printed(project_dir: Path, llc: Llc) -> None:
    (project_dir / "x.yaml").write_text(LOOP)
    done = llc("import", "x.yaml")
    assert done.returncode == 0
    assert done.stdout == import_loop(text_source(LOOP)).text
    assert "a loop has no key `weird`" in done.stderr
    assert (project_dir / "x.yaml").read_text() == LOOP


def test_import_of_a_folder(project_dir: Path, llc: Llc) -> None:
    """A folder keeps its structure; existing files are not overwritten; a second import changes nothing."""
    (project_dir / "in" / "lib").mkdir(parents=True)
    (project_dir / "in" / "x.yaml").write_text(LOOP)
    (project_dir / "in" / "lib" / "common.yaml").write_text("fragments: {f: {action: ls, on_yes: done}}\n")
    assert llc("import", "in", "-o", "out").returncode == 0
    assert (
        project_dir / "out" / "lib" / "common.yaml"
    ).read_text() == "fragments: {f: {action: ls, on_success: done}}\n"
    second = llc("import", "in", "-o", "out")
    assert (second.returncode, "exists" in second.stderr) == (2, True)
    assert llc("import", "in", "--check").returncode == 1
    assert llc("import", "in", "--in-place").returncode == 0
    assert (project_dir / "in" / "x.yaml").read_text() == (project_dir / "out" / "x.yaml").read_text()
    assert llc("import", "in", "--check").returncode == 0
    assert llc("validate", "out/x.yaml").returncode == 0


def test_diff_and_json_show_the_changes(project_dir: Path, llc: Llc) -> None:
    (project_dir / "x.yaml").write_text(LOOP)
    difference = llc("import", "--diff", "x.yaml").stdout
    assert "+    on_success: judge" in difference
    (file,) = json.loads(llc("import", "--json", "x.yaml").stdout)["files"]
    assert (file["changed"], file["refused"], file["diff"]) == (True, False, difference)
    assert {diagnostic["id"] for diagnostic in file["decisions"]} >= {"unknown-key", "unused-key"}


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
def test_invalid_options_are_refused(words: list[str], message: str, project_dir: Path, llc: Llc) -> None:
    """One message, exit code 2, and no file is written."""
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
def test_shipped_loops_compile_to_the_same_program(tmp_path: Path) -> None:
    """Imported together, all accepted loops compile to the same program without the dialect."""
    paths = shipped_loops()
    root = min((path.parent for path in paths), key=lambda folder: len(folder.parts))
    # A program with computed loop names contains its path, so the import replaces the file.
    targets = [tmp_path / "loops" / path.relative_to(root) for path in paths]
    for path, target in zip(paths, targets, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text())
    expected = {}
    for target in targets:
        with contextlib.suppress(CompileError):
            expected[target] = compile_file(str(target), DIALECT).program
    refused = []
    for target in targets:
        text = target.read_text()
        imported = import_loop(text_source(text, str(target)))
        refused += [target.stem] if imported.is_refused else []
        comments = re.findall(r"^ *(#.*)$", text, re.M)
        assert not Counter(comments) - Counter(re.findall(r"^ *(#.*)$", imported.text, re.M)), target.name
        target.with_suffix(".new").write_text(imported.text)
    for target in targets:
        target.with_suffix(".new").replace(target)
    counts = {"same": 0, "kept": 0}
    for target, old in expected.items():
        new = compile_file(str(target)).program
        assert attrs.evolve(old, sources=()) == attrs.evolve(new, sources=()), target.name
        counts["kept" if "\ndialect: little-loops" in target.read_text() else "same"] += 1
    print(counts, "refused:", refused)
    assert counts["same"] >= 93
    assert refused == ["cua-agent-desktop"]
