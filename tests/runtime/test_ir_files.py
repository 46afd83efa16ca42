"""IR text files as programs: input that `run`, `compile`, `disasm` and `validate` accept or refuse."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llc.frontend.compile import compile_text
from llc.ir.diagnostics import CompileError
from llc.ir.text import parse_program, print_program
from llc.vm.code.emit import emit
from llc.vm.code.verify import verify_image

Llc = Callable[..., subprocess.CompletedProcess[str]]

LOOP = """name: fix
initial: check
context: {word: hello}
states:
  check: {action: "echo ${context.word}; exit 1", capture: said, on_success: done, on_failure: repair}
  repair: {action: "echo repaired", on_success: check, on_failure: failed}
  done: {terminal: true}
  failed: {terminal: true, status: failure}
max_iterations: 3
"""
FLOW = '(define (half x) (/ x 2))\n(half "a")\n'
HEAD = "program p entry main\nfunction main()\n  state start\n"


@pytest.fixture
def project(project_dir: Path) -> Path:
    (project_dir / ".loops" / "fix.yaml").write_text(LOOP)
    (project_dir / ".loops" / "flow.sexp").write_text(FLOW)
    return project_dir


# Fields that differ between two runs of one program.
VARYING_FIELDS = {"ts", "crc", "run", "path", "pid", "start_time", "duration_ms", "elapsed_ms"}


def journal(project: Path) -> list[Any]:
    """Events of the last run, without the fields that differ between runs."""
    last = max(project.glob(".loops/.history/*/*.events.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    return [without_varying_fields(json.loads(line)) for line in last.read_text().splitlines()]


def without_varying_fields(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_varying_fields(item) for key, item in value.items() if key not in VARYING_FIELDS}
    return [without_varying_fields(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "code"), [("fix", 3), ("flow", 1)])
def test_ir_text_runs_like_its_source(llc: Llc, project: Path, name: str, code: int) -> None:
    """The output of `llc compile` gives the same journal, including source positions; also from the cache."""
    assert llc("compile", name, "-o", "x.ir").returncode == 0
    assert llc("run", name, "-q").returncode == code
    expected = journal(project)
    assert len(expected) >= 2
    for _ in range(2):
        assert llc("run", "x.ir", "-q").returncode == code
        assert journal(project) == expected


def test_ir_text_is_compiled_and_disassembled(llc: Llc, project: Path) -> None:
    """Compiling the text prints the same text; its image and bytecode are those of the source."""
    llc("compile", "fix", "-o", "x.ir")
    assert llc("compile", "x.ir").stdout == Path("x.ir").read_text()
    assert llc("disasm", "x.ir", "--json").stdout.count('"op"') == llc(
        "disasm", "fix", "--json"
    ).stdout.count('"op"')
    assert llc("compile", "x.ir", "-o", "x.llb").returncode == 0
    assert llc("run", "x.llb", "-q").returncode == 3
    refused = llc("compile", "x.ir", "--emit", "fsm")
    assert refused.returncode == 2
    assert "x.ir is IR text, which has no form `fsm`" in refused.stderr


def test_ir_text_without_sources_is_its_own_source(llc: Llc, project_dir: Path) -> None:
    """A fault in a hand-written text is shown at its position in the text."""
    Path("x.ir").write_text(HEAD + '    return div(1, "a")\n')
    done = llc("run", "x.ir")
    assert done.returncode == 1
    assert "--> x.ir:4:5" in done.stderr or "--> x.ir:4:12" in done.stderr
    assert '4 |     return div(1, "a")' in done.stderr


def test_ir_text_cannot_be_overridden(llc: Llc, project: Path) -> None:
    """An option that would replace a part of the program is refused, with a remedy."""
    llc("compile", "fix", "-o", "x.ir")
    for words in (["--context", "word=bye"], ["--arg", "a=1"], ["--max-iterations", "2"], ["--no-llm"]):
        done = llc("run", "x.ir", *words)
        assert done.returncode == 2
        assert "error[bad-override]: IR text is a compiled program" in done.stderr
        assert "llc compile LOOP" in done.stderr


def test_edited_ir_text_is_a_changed_program(llc: Llc, project: Path) -> None:
    """An unfinished run notices that its IR text has changed, although its sources have not."""
    from llc.runtime.project import program_diff
    from llc.runtime.project.load import load_program
    from llc.runtime.project.options import Values

    llc("compile", "fix", "-o", "x.ir")
    image = load_program("x.ir", Values("x.ir"), lambda text: None)
    assert program_diff.find({"path": "x.ir"}, image, "outputs") is None
    Path("x.ir").write_text(Path("x.ir").read_text().replace("echo repaired", "echo again"))
    change = program_diff.find({"path": "x.ir"}, image, "outputs")
    assert change is not None
    assert list(change.changed) == ["main"]


# --- damaged, forged and huge texts -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", "1:1", "the text ends too early"),
        ("hello", "1:1", "unexpected `hello`"),
        (HEAD + "    goto strat\n", "4:5", "no state `strat`"),
        (HEAD + "    return (1\n", "4:12", "unexpected `(`"),
        (HEAD + "    perform launch {} -> x then start\n", "4:5", "`launch`"),
        (HEAD + '    return "\n', "4:12", "not closed"),
        (HEAD + f"    return {'9' * 5000}\n", "4:12", "too long for decimal digits"),
        (HEAD + f"    return {'[' * 3000}{']' * 3000}\n", "4:5", "nested"),
        (HEAD + f"    return {'neg(' * 5000}1{')' * 5000}\n", "4:12", "nested"),
        (HEAD + "    return null @0:9999999999:1-1:1\n", "4:17", "too long"),
        (HEAD + "    return null @7:1:1-1:1\n", "4:17", "there is no source `7`"),
        (HEAD.replace("entry main", "entry other") + "    return null\n", "1:1", "the entry `other`"),
        ('program p entry main\n  meta {"kind": "lop"}\n' + HEAD[21:] + "    return 1\n", "2:3", "`kind`"),
        (
            'program p entry main\nmeta {"kind": "loop", "limits": {"max_iterations": 2}}\n'
            "function main()\n  state a\n    goto a\n",
            "4:3",
            "cycle",
        ),
    ],
)
def test_invalid_text_is_reported_with_its_position(
    llc: Llc, project_dir: Path, text: str, position: str, message: str
) -> None:
    """An error with line and column, exit code 2, no traceback."""
    Path("x.ir").write_text(text)
    done = llc("validate", "x.ir")
    assert done.returncode == 2
    assert f"--> x.ir:{position}" in done.stderr
    assert message in done.stderr


def test_each_command_refuses_an_invalid_text(llc: Llc, project_dir: Path) -> None:
    """`run`, `compile` and `disasm` show the same error as `validate`, and nothing runs."""
    Path("x.ir").write_text(HEAD + "    goto strat\n")
    for subcommand in ("run", "compile", "disasm"):
        done = llc(subcommand, "x.ir")
        assert done.returncode == 2
        assert "error[unknown-state]" in done.stderr
        assert "--> x.ir:4:5" in done.stderr
    assert not Path(".loops/.history").exists()


@pytest.mark.parametrize("seed", range(4))
def test_damaged_text_causes_no_internal_error(seed: int) -> None:
    """Texts with random changes are refused with a position, or give an image that verifies."""
    chance = random.Random(seed)
    texts = [print_program(compile_text(*pair).program) for pair in ((LOOP, "fix.yaml"), (FLOW, "flow.sexp"))]
    words = [re.findall(r'\w+|"[^"\n]*"|\s+|.', text) for text in texts]
    replacements = [
        *words[0],
        *words[1],
        "-1",
        "1e999",
        "[[]]",
        "`\\u0000`",
        '@"/dev/zero":1:1-1:1',
        "^0:0:0-0:0",
    ]
    problems: list[object] = []
    for _ in range(60):
        changed_words = list(chance.choice(words))
        for _ in range(chance.randint(1, 3)):
            index = chance.randrange(len(changed_words))
            changed_words[index : index + chance.randint(0, 1)] = [
                chance.choice(replacements)
            ] * chance.randint(0, 1)
        try:
            image = emit(compile_text("".join(changed_words), "x.ir").program)
        except CompileError as error:
            spans = [diagnostic.span for diagnostic in error.diagnostics]
            problems += [span for span in spans if span is None or span.path != "x.ir"]
        else:
            problems += [diagnostic for diagnostic in verify_image(image) if diagnostic.is_error]
    assert problems == []


def test_huge_text_is_refused(llc: Llc, project_dir: Path) -> None:
    """A text beyond the size limit of a source is not parsed."""
    Path("x.ir").write_text(HEAD + " " * (16 << 20) + "return 1\n")
    done = llc("validate", "x.ir")
    assert done.returncode == 2
    assert "error[file-too-large]" in done.stderr


@pytest.mark.parametrize("subcommand", ["run", "validate"])
@pytest.mark.parametrize("suffix", [".ir", ".llb"])
def test_entry_with_parameters_is_refused(llc: Llc, project_dir: Path, subcommand: str, suffix: str) -> None:
    """A program runs without arguments; only the Python machine accepts arguments."""
    text = "program p entry f\nfunction f(a)\n  state s\n    return a\n"
    Path("x.ir").write_text(text)
    Path("x.llb").write_bytes(emit(parse_program(text, "x.ir")).to_bytes())
    done = llc(subcommand, f"x{suffix}")
    assert done.returncode == 2
    assert "error[bad-entry]: " in done.stdout + done.stderr
    assert "the entry `f` has parameters" in done.stdout + done.stderr


# --- disasm -------------------------------------------------------------------------------------


def test_disasm_shows_one_function(llc: Llc, project: Path) -> None:
    """`--function NAME` shows one function, as text and as JSON; an unknown name gets a suggestion."""
    text = llc("disasm", "flow", "--function", "half").stdout
    assert text.startswith("function half(x)")
    assert text in llc("disasm", "flow").stdout
    data = json.loads(llc("disasm", "flow", "--function", "half", "--json").stdout)
    assert [function["name"] for function in data["functions"]] == ["half"]
    done = llc("disasm", "flow", "--function", "hal")
    assert done.returncode == 2
    assert "error[unknown-function]: .loops/flow.sexp has no function `hal`" in done.stderr
    assert "did you mean `half`?" in done.stderr


def test_disasm_accepts_arguments_and_declarations(llc: Llc, project_dir: Path) -> None:
    """`--arg` and `--declare` define names without which the flow does not compile."""
    Path("need.sexp").write_text("(fetch-page target)\n")
    assert llc("disasm", "need.sexp").returncode == 2
    done = llc("disasm", "need.sexp", "--arg", "target=src", "--declare", "fetch-page(url)")
    assert done.returncode == 0, done.stderr
    assert "fetch-page" in done.stdout
