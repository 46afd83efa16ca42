"""Loops composed of several files: imports, fragments, inheritance and `flow`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from llc.frontend.compile import Compiled, compile_file, compile_text
from llc.ir.diagnostics import CompileError, Diagnostic

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Fixture: write the files of a folder of loops."""

    def write(**files: str) -> Path:
        folder = tmp_path / ".loops"
        for name, text in files.items():
            path = folder / (name.replace("__", "/") + ".yaml")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return folder

    return write


def compiled(path: Path) -> Compiled:
    return compile_file(str(path))


def only_error(path: Path) -> Diagnostic:
    """The only diagnostic of a loop."""
    with pytest.raises(CompileError) as error:
        compile_file(str(path))
    (diagnostic,) = error.value.diagnostics
    return diagnostic


HEAD = "name: x\ninitial: a\n"
USES = (
    HEAD + "import: [lib/common.yaml]\nstates:\n  a: {fragment: run, action: make, on_yes: done, on_no: a}\n"
)
DONE = "  done: {terminal: true}\n"
LIBRARY = """\
fragments:
  run:
    description: a command
    action_type: shell
    evaluate: {type: exit_code, failure: [1, 5]}
"""


def test_state_overrides_its_fragment(write: Write) -> None:
    """The state takes precedence over the fragment; nested mappings are merged."""
    text = USES.replace("action: make", "action: make, evaluate: {success: [0, 3]}") + DONE
    loop = compiled(write(x=text, lib__common=LIBRARY) / "x.yaml").loop
    assert loop is not None
    judge = loop.states["a"].evaluate
    assert (judge.success, judge.failure) == ((0, 3), (1, 5))
    assert loop.states["a"].action_type == "shell"


def test_error_in_fragment_is_reported_in_its_library(write: Write) -> None:
    """A wrong key of a fragment is marked in the library."""
    folder = write(x=USES + DONE, lib__common=LIBRARY + "    tmeout: 5\n")
    diagnostic = only_error(folder / "x.yaml")
    assert diagnostic.span is not None
    assert (diagnostic.id, diagnostic.span.path, diagnostic.span.line) == (
        "unknown-key",
        str(folder / "lib/common.yaml"),
        6,
    )


def test_sources_contain_all_files(write: Write) -> None:
    """The sources of a program include its libraries, so that a change of a library is detected."""
    folder = write(x=USES + DONE, lib__common=LIBRARY)
    assert [source.path for source in compiled(folder / "x.yaml").sources] == [
        str(folder / "x.yaml"),
        str(folder / "lib/common.yaml"),
    ]


def test_library_is_found_in_parent_folders(write: Write) -> None:
    """The search goes up to the folder of loops."""
    compiled(write(deep__down__x=USES + DONE, lib__common=LIBRARY) / "deep/down/x.yaml")


PARAMETERS = """\
fragments:
  run:
    parameters:
      target: {type: string, required: true, description: what to make}
      jobs: {type: integer, default: 2}
    action: make -j${param.jobs} ${param.target:shell}
"""


def with_parameters(binding: str) -> str:
    state = f"a: {{fragment: run, {binding}on_success: done, on_failure: a}}"
    return f"{HEAD}import: [lib/common.yaml]\nstates:\n  {state}\n{DONE}"


def test_fragment_parameters_are_substituted(write: Write) -> None:
    """Defaults apply, and values are quoted where the fragment asks for it."""
    folder = write(x=with_parameters("with: {target: a b}, "), lib__common=PARAMETERS)
    loop = compiled(folder / "x.yaml").loop
    assert loop is not None
    assert loop.states["a"].action == "make -j2 'a b'"


@pytest.mark.parametrize(
    ("binding", "id", "marked"),
    [
        ("", "missing-field", "run"),
        ("with: {target: x, jobs: many}, ", "wrong-type", "many"),
        ("with: {target: x, job: 3}, ", "unknown-parameter", "job"),
        ("with: [target], ", "wrong-type", "[target]"),
    ],
)
def test_wrong_binding_is_one_error(write: Write, binding: str, id: str, marked: str) -> None:
    """The diagnostic is on the line that causes it."""
    folder = write(x=with_parameters(binding), lib__common=PARAMETERS)
    with pytest.raises(CompileError) as error:
        compile_file(str(folder / "x.yaml"))
    found = error.value.diagnostics[0]
    assert found.span is not None
    line = (folder / "x.yaml").read_text().splitlines()[found.span.line - 1]
    assert (found.id, line[found.span.column - 1 : found.span.end_column - 1]) == (id, marked)


PARENT = (
    HEAD + "max_iterations: 7\nscope: [src]\nstates:\n  a: {action: make, on_success: done, on_failure: a}\n"
)


def test_loop_inherits_from_parent(write: Write) -> None:
    """Mappings are merged, lists are replaced."""
    child = "from: parent\nname: child\nscope: [docs]\nstates:\n  a: {action: make docs}\n"
    loop = compiled(write(parent=PARENT + DONE, child=child) / "child.yaml").loop
    assert loop is not None
    assert (loop.name, loop.max_iterations, loop.scope) == ("child", 7, ("docs",))
    assert (loop.states["a"].action, loop.states["a"].on_failure) == ("make docs", "a")


def test_inheritance_cycle_is_an_error(write: Write) -> None:
    """Both direct and indirect cycles are reported."""
    folder = write(one="from: one\nname: one\n", two="from: three\n", three="from: two\n")
    assert only_error(folder / "one.yaml").id == "circular-inheritance"
    diagnostic = only_error(folder / "two.yaml")
    assert diagnostic.id == "circular-inheritance"
    assert diagnostic.message.endswith("two.yaml → three.yaml → two.yaml")


def test_flow_expands_to_states(write: Write) -> None:
    """`a?yes:no` branches, a plain step continues with the next one, the last step is terminal."""
    text = """\
name: x
flow: [check?done:fix, fix, done]
state_defs:
  check: {action: make}
  fix: {action: make fix, next: check}
"""
    loop = compiled(write(x=text) / "x.yaml").loop
    assert loop is not None
    assert loop.initial == "check"
    assert dict(loop.states["check"].routes) == {"success": "done", "failure": "fix"}
    assert loop.states["fix"].next == "check"
    assert loop.states["done"].terminal


@pytest.mark.parametrize(
    ("text", "id"),
    [
        (USES, "file-not-found"),
        (USES.replace("[lib/common.yaml]", "lib/common.yaml"), "wrong-type"),
        (USES.replace("lib/common.yaml", "../common.yaml"), "outside-project"),
        (USES.replace("lib/common.yaml", "link.yaml"), "outside-project"),
        (USES.replace("lib/common.yaml", "list.yaml"), "wrong-type"),
        (USES.replace("lib/common.yaml", "empty.yaml"), "empty-document"),
        (USES.replace("lib/common.yaml", "bad.yaml"), "yaml-syntax"),
        (USES.replace("lib/common.yaml", "loop.yaml"), "missing-field"),
        (USES.replace("lib/common.yaml", "good.yaml").replace("run", "rum"), "unknown-fragment"),
        (USES.replace("lib/common.yaml", "x.yaml"), "missing-field"),
        ("from: nothing\nname: x\n", "file-not-found"),
        ("from: [a]\nname: x\n", "wrong-type"),
        ("from: list\nname: x\n", "wrong-type"),
        ("from: ../../etc/passwd\nname: x\n", "file-not-found"),
        ("name: x\nflow: []\n", "wrong-type"),
        ("name: x\nflow: check\n", "wrong-type"),
        (LIBRARY, "fragment-library"),
    ],
)
def test_missing_part_is_one_error(write: Write, tmp_path: Path, text: str, id: str) -> None:
    """A missing import, fragment or parent causes no further diagnostic."""
    folder = write(
        x=text + (DONE if "states" in text else ""),
        list="[a]\n",
        empty="",
        bad="a: [\n",
        loop=PARENT + DONE,
        good=LIBRARY,
    )
    (tmp_path / "common.yaml").write_text(LIBRARY)
    os.symlink(tmp_path / "common.yaml", folder / "link.yaml")
    found = only_error(folder / "x.yaml")
    assert (found.id, found.help is not None or found.span is not None) == (id, True)


def test_library_must_not_import(write: Write) -> None:
    """An import in a library is one error, reported in the library."""
    folder = write(x=USES + DONE, lib__common="import: [common.yaml]\n" + LIBRARY)
    diagnostic = only_error(folder / "x.yaml")
    assert diagnostic.span is not None
    assert (diagnostic.id, diagnostic.span.path, diagnostic.span.line) == (
        "fragment-library",
        str(folder / "lib/common.yaml"),
        1,
    )


def test_import_in_text_without_a_file_is_an_error() -> None:
    """A text without a path has no folder to search."""
    with pytest.raises(CompileError) as error:
        compile_text(USES + DONE)
    assert [diagnostic.id for diagnostic in error.value.diagnostics] == ["outside-project"]


def test_a_thousand_fragments_are_merged(write: Write) -> None:
    """A library and a loop may use a thousand fragments each."""
    count = 1000
    library = "fragments:\n" + "".join(f"  f{i}: {{action: echo {i}}}\n" for i in range(count))
    states = "".join(
        f"  s{i}: {{fragment: f{i}, next: {f's{i + 1}' if i + 1 < count else 'done'}}}\n"
        for i in range(count)
    )
    text = f"name: x\ninitial: s0\nmax_steps: 2000\nimport: [lib.yaml]\nstates:\n{states}{DONE}"
    loop = compiled(write(x=text, lib=library) / "x.yaml").loop
    assert loop is not None
    assert loop.states["s999"].action == "echo 999"


def test_merged_size_is_limited(write: Write) -> None:
    """Each use of a large fragment counts towards the limit."""
    library = "fragments:\n  big:\n    args: [" + "{a: '${param.x}'}, " * 3000 + "]\n"
    states = "".join(f"  s{i}: {{fragment: big, with: {{x: y}}, next: done}}\n" for i in range(2000))
    text = f"name: x\ninitial: s0\nimport: [lib.yaml]\nstates:\n{states}{DONE}"
    assert only_error(write(x=text, lib=library) / "x.yaml").id == "too-many-nodes"


def test_loop_parameters_are_type_checked() -> None:
    """Values of `context` and defaults are checked; a missing value is an error at the start of the loop."""
    text = HEAD + "parameters: {jobs: {type: integer, default: many}}\nstates:\n  a: {terminal: true}\n"
    with pytest.raises(CompileError) as error:
        compile_text(text)
    (diagnostic,) = error.value.diagnostics
    assert (diagnostic.id, diagnostic.message) == ("wrong-type", "`jobs` should be a whole number")
    needed = compile_text(text.replace("default: many", "required: true")).program
    assert "/missing_input" in {state.name for state in needed.functions[0].states}


TEMPLATE = """\
parameters:
  command: {type: string, required: true, description: what is run}
  rounds: {type: integer, default: 3}
initial: check
states:
  check: {action: 'sh -c "$0" ${context.command}', on_yes: done, on_no: check, on_error: done}
  done: {terminal: true}
"""


@pytest.mark.parametrize(
    ("context", "id"),
    [("context: {command: make test}", ""), ("", ""), ("context: {command: a, rounds: many}", "wrong-type")],
)
def test_a_template_is_a_parent_with_parameters(write: Write, context: str, id: str) -> None:
    """A loop gives the parameters of its parent as `context`; defaults and types are the parent's."""
    folder = write(checked=TEMPLATE, x=f"name: x\nfrom: checked\n{context}\n")
    if id:
        diagnostic = only_error(folder / "x.yaml")
        assert (diagnostic.id, diagnostic.span is not None and diagnostic.span.line) == (id, 3)
        return
    loop = compiled(folder / "x.yaml").loop
    assert loop is not None
    assert loop.context["rounds"] == 3
    assert loop.context["command"] == ("make test" if context else "")


def test_shared_parent_keeps_its_spans(write: Write) -> None:
    """The tree of a shared file is parsed once; its diagnostics have the same span for each loop and for the
    file itself.
    """
    folder = write(
        x=USES + DONE, longer="# more\n" * 50 + USES + DONE, lib__common=LIBRARY + "    tmeout: 5\n"
    )
    spans = [only_error(folder / f"{name}.yaml").span for name in ("x", "longer", "x", "longer")]
    assert {str(span) for span in spans} == {f"{folder}/lib/common.yaml:6:5"}
    child = "from: parent\nname: child\nstates:\n  a: {action: make docs}\n"
    folder = write(parent=PARENT + DONE, child=child)
    for _ in range(2):
        for name in ("child", "parent"):
            loop = compiled(folder / f"{name}.yaml").loop
            assert loop is not None
            done = loop.states["done"].span_of("name")
            assert done is not None
            assert (done.path, done.line) == (str(folder / "parent.yaml"), 7)
