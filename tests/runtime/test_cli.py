"""The command line: subcommands, options, exit codes and output streams."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import run_llc
from keepers import KILL

from llc.runtime.cli.subcommands import SUBCOMMANDS

Llc = Callable[..., subprocess.CompletedProcess[str]]

GOOD = """
name: good
description: Checks, then is done.
initial: check
context: {word: hello}
states:
  check: {action: "echo ${context.word}", on_success: done, on_failure: failed}
  done: {terminal: true}
  failed: {terminal: true, status: failure}
max_iterations: 5
"""
BAD = """name: bad
initial: check
states:
  check: {action: 'true', on_success: dnoe, on_failure: done}
  done: {terminal: true}
"""
WARNS = "name: warns\ninitial: a\nstates:\n  a: {action: 'true', on_success: z}\n  z: {terminal: true}\n"
SPINS = """name: spins
initial: a
states:
  a: {action: 'true', on_success: a, on_failure: z}
  z: {terminal: true}
max_iterations: 3
"""


@pytest.fixture
def llc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Llc:
    """Run llc in a project with a few loops, with files as its streams."""
    folder = tmp_path / ".loops"
    folder.mkdir()
    for name, text in (("good", GOOD), ("bad", BAD), ("warns", WARNS)):
        (folder / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("NO_COLOR", "FORCE_COLOR", "LLC_LLM_MODEL"):
        monkeypatch.delenv(name, raising=False)

    return run_llc


def run_process(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run llc in its own process."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([sys.executable, "-m", "llc", *words], text=True, check=False, **options)


def json_object(completed: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The single JSON object on stdout."""
    assert completed.stdout.count("\n") == 1
    value = json.loads(completed.stdout)
    assert isinstance(value, dict)
    return value


# --- run ----------------------------------------------------------------------------------------


def test_run_shows_progress_and_exits_0(llc: Llc) -> None:
    """A successful run shows its progress on stdout and nothing on stderr."""
    done = llc("run", "good")
    assert done.returncode == 0
    assert done.stderr == ""
    assert re.fullmatch(
        r"\[1/5\] check → echo hello\n"
        r"      │ hello\n"
        r"      ✓ success \(exit 0\)\n"
        r"      → done\n"
        r"\n"
        r"Loop completed: done \(1 iteration, \d\.\ds\)\n",
        done.stdout,
    )


@pytest.mark.parametrize(
    ("action", "code", "status", "terminated_by"),
    [
        ("true", 0, "success", "terminal"),
        ("false", 1, "failure", "terminal"),
        ("exit 7", 1, "error", "error"),
    ],
)
def test_exit_code_and_json_report_the_outcome(
    llc: Llc, tmp_path: Path, action: str, code: int, status: str, terminated_by: str
) -> None:
    """0 for success, 1 for a failure terminal or an error; `--json` tells them apart."""
    path = tmp_path / "x.yaml"
    path.write_text(GOOD.replace("echo ${context.word}", action).replace("context: {word: hello}\n", ""))
    done = llc("run", "x.yaml", "--json")
    assert done.returncode == code
    outcome = json_object(done)
    assert (outcome["status"], outcome["terminated_by"]) == (status, terminated_by)
    assert list(outcome) == [
        "run", "program", "status", "terminated_by", "final_state",
        "iterations", "steps", "value", "error", "duration_ms",
    ]  # fmt: skip
    assert (outcome["error"] is None) == (status != "error")


def test_limit_exits_3(llc: Llc, tmp_path: Path) -> None:
    """max_iterations, from the file or from the command line."""
    (tmp_path / "spins.yaml").write_text(SPINS)
    done = llc("run", "spins.yaml", "--json", "--max-iterations", "2")
    assert done.returncode == 3
    outcome = json_object(done)
    assert (outcome["status"], outcome["terminated_by"], outcome["iterations"]) == (
        "limit",
        "max_iterations",
        2,
    )


def test_invalid_loop_exits_2_with_json(llc: Llc) -> None:
    """With --json the diagnostics are in the one object; otherwise they are on stderr."""
    done = llc("run", "bad", "--json")
    assert done.returncode == 2
    outcome = json_object(done)
    assert (outcome["status"], outcome["run"]) == ("error", None)
    assert outcome["error"]["kind"] == "invalid-loop"
    assert outcome["error"]["diagnostics"][0]["line"] == 4
    assert "did you mean `done`?" in done.stderr


def test_an_unknown_loop_gets_a_suggestion(llc: Llc) -> None:
    """A misspelt name exits with 2 and suggests the nearest name."""
    done = llc("run", "goood")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "error[unknown-loop]: no loop named `goood` in .loops/\n = help: did you mean `good`?\n"
    )


def test_context_is_set_from_the_command_line(llc: Llc) -> None:
    """--context K=V can be repeated and overrides the loop."""
    done = llc("run", "good", "--context", "word=a", "--context=word=b c", "--json")
    assert done.returncode == 0
    assert "→ echo b c" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["good", "--max-iterations", "0"],
        ["good", "--max-iterations", "many"],
        ["good", "--max-iterations"],
        ["good", "--context", "word"],
        ["good", "--unknown"],
        ["good", "other"],
        [],
    ],
)
def test_bad_usage_exits_2_with_one_message(llc: Llc, words: list[str]) -> None:
    """A wrong option is refused on stderr, without a traceback and without running anything."""
    done = llc("run", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "rror" in done.stderr
    assert "Traceback" not in done.stderr
    assert not os.path.exists(".loops/.running")


def test_quiet_shows_nothing(llc: Llc) -> None:
    """With --quiet only the exit code reports the outcome."""
    done = llc("run", "good", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_dry_run_shows_the_plan_and_runs_nothing(llc: Llc) -> None:
    """States, their actions, evaluators, routes, limits and scope; no run starts."""
    done = llc("run", "good", "--dry-run")
    assert done.returncode == 0
    for part in (
        "good: fsm, begins in check",
        "max_iterations 5",
        "shell: echo hello",
        "evaluate: exit_code",
    ):
        assert part in done.stdout
    assert "success → done" in done.stdout
    assert not os.path.exists(".loops/.running")
    plan = json.loads(llc("run", "good", "--dry-run", "--json").stdout)
    assert plan["states"][0]["routes"] == {"success": "done", "failure": "failed"}


def test_a_scripted_run_performs_nothing(llc: Llc, tmp_path: Path) -> None:
    """--script takes results from rules; an effect without one ends the run with an error."""
    (tmp_path / "world.yaml").write_text("- {state: check, exit_code: 1}\n")
    assert llc("run", "good", "--script", "world.yaml", "-q").returncode == 1
    (tmp_path / "world.yaml").write_text("- {state: other}\n")
    done = llc("run", "good", "--script", "world.yaml", "--json")
    assert done.returncode == 1
    assert "echo hello" in json_object(done)["error"]["message"]


def test_an_image_runs_like_its_loop(llc: Llc) -> None:
    """compile -o x.llb, then run x.llb; overrides need the sources in the image."""
    assert llc("compile", "good", "-o", "x.llb").returncode == 0
    assert "│ hello" in llc("run", "x.llb").stdout
    assert "│ bye" in llc("run", "x.llb", "--context", "word=bye").stdout
    assert llc("compile", "good", "-o", "x.llb", "--no-sources").returncode == 0
    assert llc("run", "x.llb", "-q").returncode == 0
    done = llc("run", "x.llb", "--context", "word=bye")
    assert done.returncode == 2
    assert "compiled without its sources" in done.stderr


def test_an_image_is_verified_once(llc: Llc, tmp_path: Path) -> None:
    """The second run imports no verifier, whatever the image's name; another image is verified."""
    llc("compile", "good", "-o", "x.llb")
    llc("run", "x.llb", "-q")
    os.rename("x.llb", "y.llb")
    code, modules = imported_by("run", "y.llb", "-q")
    assert code == 0
    assert not (HEAVY | {"llc.vm.code.verify", "llc.ir.verify"}) & modules
    (entry,) = (tmp_path / ".loops" / ".cache").glob("*.sound")
    data = entry.read_bytes()
    entry.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))  # a forged entry
    assert "llc.vm.code.verify" in imported_by("run", "y.llb", "-q")[1]
    llc("compile", "good", "-o", "z.llb", "--context", "word=z")
    assert "llc.vm.code.verify" in imported_by("run", "z.llb", "-q")[1]


def test_the_program_of_a_local_run_is_not_verified_again(llc: Llc) -> None:
    """Inspecting and resuming a run do not verify the program that was compiled here."""
    llc("run", "good", "-q")
    code, modules = imported_by("replay", "good", "--json")
    assert code == 0
    assert not {"llc.vm.code.verify", "llc.ir.verify"} & modules


def test_a_loop_without_an_agent_loads_no_schema_of_agents(llc: Llc) -> None:
    """Loading the schema of agents takes a third of the time of loading the compiler."""
    code, modules = imported_by("run", "good", "-q")
    assert code == 0
    assert "llc.frontend.compile" in modules
    assert "llc.runtime.project.agent_schema" not in modules


def test_an_unsound_image_is_never_accepted(llc: Llc, tmp_path: Path) -> None:
    """A second attempt fails too: only successful verifications are cached."""
    from llc.vm.code.image import Image

    round = {"action": "false", "on_success": "b", "on_failure": "a"}
    loop = {"name": "round", "initial": "a", "states": {"a": round, "b": {"terminal": True}}}
    Path("round.yaml").write_text(json.dumps(loop))
    llc("compile", "round.yaml", "-o", "x.llb")
    image = Image.from_bytes(Path("x.llb").read_bytes())
    image.meta["limits"]["max_iterations"] += 1  # more than its code enforces
    Path("x.llb").write_bytes(image.to_bytes())
    for _ in range(2):
        done = llc("run", "x.llb")
        assert done.returncode == 2
        assert "error[" in done.stderr
    assert list((tmp_path / ".loops").rglob("*.sound")) == []


@pytest.mark.parametrize("damage", ["cut", "flip", "text", "empty"])
def test_a_damaged_image_is_refused(llc: Llc, tmp_path: Path, damage: str) -> None:
    """Any damage gives one clear error and exit code 2."""
    llc("compile", "good", "-o", "x.llb")
    path = tmp_path / "x.llb"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(
        {"cut": path.read_bytes()[:-9], "flip": bytes(data), "text": b"hello", "empty": b""}[damage]
    )
    done = llc("run", "x.llb")
    assert done.returncode == 2
    assert "error[bad-image]: x.llb: " in done.stderr


def test_an_unwritable_directory_is_one_error(llc: Llc, tmp_path: Path) -> None:
    """If no run folder can be created nothing runs, and the error has the reason."""
    (tmp_path / ".loops" / ".running").write_text("")
    done = llc("run", "good")
    assert done.returncode == 1
    assert "error[cannot-write]: cannot create .loops/.running" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_works_with_its_streams_closed(llc: Llc) -> None:
    """`llc run … >&- 2>&-` performs the run."""
    done = subprocess.run(f"{sys.executable} -m llc run good >&- 2>&-", shell=True, check=False)
    assert done.returncode == 0
    assert list(Path(".loops/.history").glob("good-*"))


def test_a_full_disk_stops_the_run_and_loses_nothing(llc: Llc, tmp_path: Path) -> None:
    """When the journal cannot grow the run stops with exit code 1, and can be resumed."""
    path = tmp_path / "long.yaml"
    path.write_text(
        GOOD.replace("echo ${context.word}", "echo done >> log; seq 3000").replace(
            "context: {word: hello}\n", ""
        )
    )
    done = subprocess.run(
        f"ulimit -f 8; exec {sys.executable} -m llc run long.yaml --json",
        shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    outcome = json_object(done)
    assert outcome["error"]["kind"] == "journal"
    assert f"llc resume {outcome['run']}" in outcome["error"]["help"]
    assert json_object(llc("resume", outcome["run"], "--json"))["status"] == "success"


# --- the cache ----------------------------------------------------------------------------------


def cache_entries(folder: Path) -> list[Path]:
    return sorted((folder / ".loops" / ".cache").glob("*.cached"))


HEAVY = {"attr", "attrs", "yaml", "lark", "typer", "dataclasses", "inspect", "anthropic", "asyncio"}
HEAVY |= {"logging", "pathlib", "importlib.metadata", "re2", "jq", "rich"}


def imported_by(*words: str) -> tuple[int, set[str]]:
    """The exit code of a command, and the modules that it imported."""
    code = (
        "import sys; before = set(sys.modules)\n"
        "from llc.runtime.cli.entry import main\n"
        "sys.argv = ['llc', *sys.argv[1:]]\n"
        "code = main()\n"
        "open('modules', 'w').write(' '.join([str(code), *sorted(set(sys.modules) - before)]))"
    )
    subprocess.run([sys.executable, "-c", code, *words], capture_output=True, check=True)
    exit_code, *modules = Path("modules").read_text().split()
    return int(exit_code), set(modules)


def count_own_modules(modules: set[str]) -> int:
    """Number of imported llc modules, without packages."""
    ours = sorted(name for name in modules if name.startswith("llc."))
    packages = {name for name, after in itertools.pairwise(ours) if after.startswith(f"{name}.")}
    return len(set(ours) - packages)


def test_an_unchanged_loop_is_compiled_once(llc: Llc, tmp_path: Path) -> None:
    """The second run uses the first one's image and imports neither compiler nor typer."""
    llc("run", "good", "-q")
    (entry,) = cache_entries(tmp_path)
    modified_at = entry.stat().st_mtime_ns
    code, modules = imported_by("run", "good", "-q")
    assert code == 0
    assert not (HEAVY | {"typing", "json", "bisect", "re", "enum", "functools", "collections"}) & modules
    assert not [name for name in modules if name.startswith("llc.frontend")]
    assert count_own_modules(modules) <= 104
    assert [path.stat().st_mtime_ns for path in cache_entries(tmp_path)] == [modified_at]


def test_inspection_subcommands_import_little(llc: Llc) -> None:
    """Frequent inspection starts as quickly as a run."""
    llc("run", "good", "-q")
    for line in ("status", "history", "logs good", "clean --dry-run"):
        code, modules = imported_by(*line.split())
        assert (code, HEAVY & modules) == (0, set()), line


# Modules that a loop without variables in its actions does not need.
UNUSED = (
    "loop.paradigms", "loop.natural", "loop.json_schema", "loop.fsm_printer", "template.shell_quoting",
    "shell", "core", "sexp", "expand", "tasks", "lower.program", "link.linker", "link.flow",
)  # fmt: skip


def unused(modules: set[str]) -> list[str]:
    """Modules of the frontend that were imported although a plain loop does not need them."""
    prefixes = tuple(f"llc.frontend.{name}" for name in UNUSED)
    return [name for name in modules if name.startswith(prefixes)]


def test_compiling_subcommands_import_only_the_compiler(llc: Llc) -> None:
    """They load neither Typer nor modules that only other loops need."""
    for line in (
        "validate good",
        "compile good -o good.llb",
        "disasm good",
        "run good -q --max-iterations 7",
    ):
        code, modules = imported_by(*line.split())
        assert code == 0
        assert HEAVY & modules == {"attr", "attrs", "yaml", "inspect"}, line
        assert not unused(modules), line


def test_a_first_run_imports_only_compiler_and_runtime(llc: Llc) -> None:
    """A loop that is not in the cache imports a bounded number of our modules."""
    code, modules = imported_by("run", "good", "-q")
    assert code == 0
    assert HEAVY & modules == {"attr", "attrs", "yaml", "inspect"}
    assert not unused(modules)
    # Currently 149: 51 of the compiler and the IR, 98 of the machine and the runtime.
    assert count_own_modules(modules) <= 156


@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["task", "-h"], ["create", "x", "--help"], ["--version"], []]
)
def test_help_imports_little(llc: Llc, words: list[str]) -> None:
    """Neither Typer nor the implementation of the subcommand."""
    code, modules = imported_by(*words)
    assert code == (0 if words else 2)
    assert not (HEAVY | {"typing", "llc.runtime.cli.typer_app"}) & modules
    assert not [name for name in modules if name.startswith(("llc.frontend", "llc.vm"))]


@pytest.mark.parametrize("line", ["llc ", "llc run ", "llc run --max", "llc status ", "llc create -p "])
def test_completion_imports_little(llc: Llc, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like help."""
    monkeypatch.setenv("_LLC_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    code, modules = imported_by()
    assert code == 0
    assert not (HEAVY | {"typing", "llc.runtime.cli.typer_app"}) & modules
    assert not [name for name in modules if name.startswith(("llc.frontend", "llc.vm"))]


def test_plain_command_lines_do_not_import_typer(llc: Llc) -> None:
    llc("run", "good", "-q")
    for line in (
        *("list", "stop --all", "answer", "profile good", "replay good", "trace good --json", "tools"),
        *(
            "record good -o good.case.yaml",
            "mcp list",
            "test good.case.yaml",
            "fmt",
            "schema",
            "context good",
        ),
        *("fork good --at 1 -q", "batch good -q", "index --rebuild", "task --json '(+ 1 2)'"),
        "--version",
    ):
        _, modules = imported_by(*shlex.split(line))
        assert not {"typer", "rich", "anthropic", "asyncio"} & modules, line


def test_a_changed_loop_is_compiled_again(llc: Llc, tmp_path: Path) -> None:
    """Another text, override or model has another cache entry."""
    llc("run", "good", "-q")
    (tmp_path / ".loops" / "good.yaml").write_text(GOOD.replace("hello", "bye"))
    assert "│ bye" in llc("run", "good").stdout
    assert "│ ciao" in llc("run", "good", "--context", "word=ciao").stdout
    assert len(cache_entries(tmp_path)) == 3


@pytest.mark.parametrize("damage", [b"", b"x" * 500, None])
def test_a_damaged_cache_is_ignored(llc: Llc, tmp_path: Path, damage: bytes | None) -> None:
    """A damaged entry or a missing folder is not an error."""
    llc("run", "good", "-q")
    (entry,) = cache_entries(tmp_path)
    entry.write_bytes(damage if damage is not None else entry.read_bytes()[:-5])
    assert "│ hello" in llc("run", "good").stdout


def test_cache_entries_of_another_user_are_not_trusted(llc: Llc, tmp_path: Path) -> None:
    """An entry made under another user's key is not used."""
    llc("run", "good", "-q")
    (entry,) = cache_entries(tmp_path)
    (tmp_path / ".loops" / "good.yaml").write_text(GOOD.replace("hello", "evil"))
    llc("run", "good", "-q")
    (evil,) = [path for path in cache_entries(tmp_path) if path != entry]
    (tmp_path / ".loops" / "good.yaml").write_text(GOOD)
    entry.write_bytes(evil.read_bytes())
    assert "│ hello" in llc("run", "good").stdout
    llc("run", "good", "-q")
    (tmp_path / "cache" / "llc" / "key").write_bytes(b"k" * 32)
    assert "│ hello" in llc("run", "good").stdout


def test_warnings_are_shown_every_time(llc: Llc, tmp_path: Path) -> None:
    """A loop with warnings is not cached, so each run shows its warnings."""
    for _ in range(2):
        assert "warning[" in llc("run", "warns", "-q").stderr
    assert cache_entries(tmp_path) == []


# --- other subcommands --------------------------------------------------------------------------


def test_validate_checks_all_loops_and_fails_for_one(llc: Llc) -> None:
    """Without names all of .loops/ is checked; an error in any exits 2."""
    done = llc("validate")
    assert done.returncode == 2
    assert "3 loops checked, 1 invalid, 1 error, 1 warning" in done.stderr
    assert llc("validate", "good", "warns").returncode == 0
    assert llc("validate", "good", "warns", "--strict").returncode == 2


def test_validate_lists_unchecked_files_in_subfolders(llc: Llc, tmp_path: Path) -> None:
    """A loop in a sub-folder of .loops/ is checked if another loop calls it; otherwise its path is needed."""
    folder = tmp_path / ".loops" / "parts"
    folder.mkdir()
    good = (tmp_path / ".loops" / "good.yaml").read_text()
    (folder / "used.yaml").write_text(good)
    (folder / "alone.yaml").write_text(good)
    (tmp_path / ".loops" / "caller.yaml").write_text(
        "name: caller\ninitial: call\nstates:\n"
        "  call: {loop: parts/used, on_success: end, on_failure: end}\n  end: {terminal: true}\n"
    )
    line = llc("validate").stderr.splitlines()[-1]
    assert line.endswith("1 unused file not checked (`.loops/parts/alone.yaml`)"), line
    assert json.loads(llc("validate", "--json").stdout)["unchecked"] == [".loops/parts/alone.yaml"]
    assert "did you mean `.loops/parts/alone.yaml`?" in llc("run", "parts/alone").stderr


def test_validate_as_json_names_files_and_places(llc: Llc) -> None:
    """For CI: valid, counts, and each diagnostic with its place; unknown names included."""
    done = llc("validate", "--json", "good", "bad", "nothing")
    assert done.returncode == 2
    report = json.loads(done.stdout)
    assert (report["valid"], report["errors"]) == (False, 2)
    files = {entry["file"]: entry for entry in report["files"]}
    assert files[".loops/good.yaml"] == {"file": ".loops/good.yaml", "valid": True, "diagnostics": []}
    (diagnostic,) = files[".loops/bad.yaml"]["diagnostics"]
    assert (diagnostic["severity"], diagnostic["line"], diagnostic["help"]) == (
        "error",
        4,
        "did you mean `done`?",
    )
    assert files["nothing"]["diagnostics"][0]["id"] == "unknown-loop"


@pytest.mark.parametrize(
    ("form", "start"), [("fsm", 'name: "good"'), ("ir", "program good entry main"), ("bytecode", "")]
)
def test_emit_selects_the_output_of_compile(llc: Llc, form: str, start: str) -> None:
    """--emit fsm, ir (the default) or bytecode."""
    done = llc("compile", "good", "--emit", form)
    assert done.returncode == 0
    assert done.stdout.startswith(start)
    assert done.stdout
    if form == "ir":
        assert llc("compile", "good").stdout == done.stdout


def test_compile_selects_the_format_by_file_name(llc: Llc, tmp_path: Path) -> None:
    """-o x.fsm.yaml is the FSM, x.ir the IR, x.llb an image; nothing is printed."""
    for name in ("x.fsm.yaml", "x.ir", "x.llb"):
        done = llc("compile", "good", "-o", name)
        assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "x.fsm.yaml").read_text() == llc("compile", "good", "--emit", "fsm").stdout
    assert (tmp_path / "x.ir").read_text() == llc("compile", "good").stdout
    assert (tmp_path / "x.llb").read_bytes().startswith(b"\x89LLB")
    assert llc("run", "x.fsm.yaml", "-q").returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["good", "-o", "x.txt"], "cannot tell the form from the file name"),
        (["good", "-o", "x.llb", "--emit", "ir"], "but --emit is `ir`"),
        (["good", "--emit", "irr"], "did you mean `ir`?"),
        (["good", "-o", "no/x.ir"], "there is no directory `no`"),
        (["good", "-o", ".loops/good.yaml"], "is the loop itself"),
        (["good", "-o", ".loops/.cache.yaml/"], "cannot tell the form"),
    ],
)
def test_compile_refuses_contradictory_outputs(llc: Llc, words: list[str], message: str) -> None:
    """The exit code is 2 and the loop is unchanged."""
    done = llc("compile", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert Path(".loops/good.yaml").read_text() == GOOD


def test_disasm_shows_a_loop_and_its_image_alike(llc: Llc) -> None:
    """The bytecode of the source and of the image made from it is the same text."""
    llc("compile", "good", "-o", "x.llb")
    of_loop, of_image = llc("disasm", "good"), llc("disasm", "x.llb")
    assert of_loop.returncode == of_image.returncode == 0
    assert of_loop.stdout == of_image.stdout
    assert isinstance(json.loads(llc("disasm", "x.llb", "--json").stdout), dict)


def test_schema_is_json_schema(llc: Llc, tmp_path: Path) -> None:
    """llc schema prints it, -o writes it."""
    printed = llc("schema").stdout
    assert json.loads(printed)["$schema"].startswith("http://json-schema.org/")
    assert llc("schema", "-o", "schema.json").returncode == 0
    assert (tmp_path / "schema.json").read_text() == printed


def test_other_schemas_are_selected_by_name(llc: Llc) -> None:
    """Schemas of results have names."""
    assert "parsedContent" in json.loads(llc("schema", "TaskResult").stdout)["properties"]
    refused = llc("schema", "TaskReslt")
    assert (refused.returncode, "did you mean `TaskResult`?" in refused.stderr) == (2, True)


def test_loop_name_alone_runs_the_loop(llc: Llc) -> None:
    """`llc NAME` is `llc run NAME` if such a loop exists; a subcommand takes precedence."""
    assert json.loads(llc("good", "--json").stdout)["final_state"] == "done"
    assert json.loads(llc(".loops/good.yaml", "--json").stdout)["final_state"] == "done"
    refused = llc("goood")
    assert (refused.returncode, "unknown-command" in refused.stderr) == (2, True)


def test_list_shows_the_loops(llc: Llc) -> None:
    """Name, paradigm and description; an unreadable loop is marked."""
    rows = {row["name"]: row for row in json.loads(llc("list", "--json").stdout)}
    assert rows["good"]["description"] == "Checks, then is done."
    assert rows["good"]["paradigm"] == "fsm"
    shown = llc("list").stdout.splitlines()
    assert shown[0].split() == ["LOOP", "PARADIGM", "LAST", "RESULT", "DESCRIPTION"]
    (good,) = [line for line in shown if line.startswith("good ")]
    assert good.split() == ["good", "fsm", "-", "Checks,", "then", "is", "done."]
    assert llc("run", "good").returncode == 0
    (good,) = [line for line in llc("list").stdout.splitlines() if line.startswith("good ")]
    assert good.split()[2] == "success"


def test_list_uses_the_tools_of_the_project(llc: Llc, tmp_path: Path) -> None:
    """A flow that calls a tool is valid, as in `llc validate`."""
    loops = tmp_path / ".loops"
    (loops / "tools.yaml").write_text(
        "tools:\n  - {name: say, parameters: [what], command: [echo, '${what}']}\n"
    )
    (loops / "caller.sexp").write_text('(say "hello")\n')
    assert llc("validate", "caller").returncode == 0
    (row,) = [row for row in json.loads(llc("list", "--json").stdout) if row["name"] == "caller"]
    assert row["valid"]


def test_list_running_shows_interrupted_runs(llc: Llc, tmp_path: Path) -> None:
    """An unfinished run is listed with its state."""
    assert llc("list", "--running").stdout == "no run is unfinished; start one with: llc run LOOP\n"
    (tmp_path / ".loops" / "stuck.yaml").write_text(
        GOOD.replace("echo ${context.word}", KILL).replace("good", "stuck")
    )
    run_process("run", "stuck", "-q")
    (row,) = json.loads(llc("list", "--running", "--json").stdout)
    assert (row["program"], row["status"]) == ("stuck", "crashed")


def test_run_mentions_an_interrupted_run_of_its_loop(llc: Llc, tmp_path: Path) -> None:
    """One line, if no process owns that run; not with --quiet."""
    loop = tmp_path / ".loops" / "stuck.yaml"
    loop.write_text(GOOD.replace("echo ${context.word}", KILL).replace("good", "stuck"))
    run_process("run", "stuck", "-q")
    (row,) = json.loads(llc("list", "--running", "--json").stdout)
    loop.write_text(GOOD.replace("good", "stuck"))
    assert llc("run", "good").stderr == ""
    assert llc("run", "stuck", "--quiet").stderr == ""
    assert llc("run", "stuck", "--json").stderr.count("resume") == 0
    note = f"note: {row['run']} is unfinished; to resume it: llc resume {row['run']}\n"
    assert llc("run", "stuck").stderr == note
    assert llc("clean", row["run"], "--unfinished").returncode == 0
    assert llc("run", "stuck").stderr == ""


def test_version_is_shown(llc: Llc) -> None:
    """--version one line; with --verbose the default model and the formats."""
    plain = llc("--version").stdout
    assert re.fullmatch(r"llc \d+\.\d+\.\d+\n", plain)
    assert plain == llc("-V").stdout == llc("--version", "list").stdout
    verbose = llc("--version", "--verbose").stdout
    assert re.search(r"^default model +claude-", verbose, re.M)
    assert re.search(r"^Python +3\.", verbose, re.M)
    other = llc("--version", "--verbose", LLC_LLM_MODEL="other").stdout
    assert re.search(r"^default model +other$", other, re.M)


def test_subcommand_takes_precedence_over_a_loop_name(llc: Llc) -> None:
    """`llc NAME` runs a loop unless a subcommand has that name; a misspelt name gets a suggestion."""
    done = llc("good")
    assert done.returncode == 0
    assert "Loop completed: done" in done.stdout
    assert "did you mean `validate`?" in llc("validat").stderr


def test_ll_loop_runs_a_name(llc: Llc) -> None:
    """`ll-loop NAME OPTIONS` is `llc run NAME OPTIONS`; its subcommands are those of llc."""
    assert llc("good", "--max-iterations", "5", "--quiet", program="ll-loop").returncode == 0
    assert llc("--quiet", "good", program="ll-loop").returncode == 0
    assert "│ hello" in llc("run", ".loops/good.yaml", program="ll-loop").stdout
    assert llc("validate", "good", program="ll-loop").returncode == 0
    assert llc("goood", program="ll-loop").returncode == 2


def test_help_lists_every_subcommand(llc: Llc) -> None:
    """Each subcommand also has its own help."""
    shown = llc("--help").stdout
    assert all(name in shown for name in SUBCOMMANDS)
    assert "--max-iterations" in llc("run", "--help").stdout
    assert llc().returncode == 2


@pytest.mark.parametrize("words", [["disasm", "good"], ["--help"], ["schema"]])
def test_a_closed_pipe_is_not_an_error(llc: Llc, words: list[str]) -> None:
    """`llc … | head -0` ends without a message on stderr."""
    assert into_closed_pipe(*words).stderr == ""


def test_a_run_continues_when_its_reader_closes(llc: Llc) -> None:
    """`llc run … | head -0` performs the run."""
    done = into_closed_pipe("run", "good")
    assert (done.returncode, done.stderr) == (0, "")


def into_closed_pipe(*words: str) -> subprocess.CompletedProcess[str]:
    read, write = os.pipe()
    os.close(read)
    try:
        return run_process(*words, stdout=write)
    finally:
        os.close(write)


def test_an_internal_error_writes_a_crash_report(llc: Llc, tmp_path: Path) -> None:
    """One line, a file to report, exit code 70."""
    code = (
        "import sys\nfrom llc.runtime.cli import entry\n"
        "def broken(): raise ZeroDivisionError('by zero')\n"
        "sys.exit(entry.guarded(broken))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 70
    assert "Traceback" not in done.stderr
    assert "internal error: ZeroDivisionError: by zero" in done.stderr
    (report,) = tmp_path.glob("llc-crash-*.txt")
    assert str(report) in done.stderr
    assert "Traceback" in report.read_text()


def test_an_internal_error_in_one_file_does_not_hide_the_others(llc: Llc, tmp_path: Path) -> None:
    """`validate` and `list` check the other files; the exit code is that of an internal error."""
    code = (
        "import sys\nfrom llc.frontend.loop import reader\n"
        "real = reader.read_tree\n"
        "def broken(document, dialect):\n"
        "    if 'good' in document.source.path: raise ZeroDivisionError('by zero')\n"
        "    return real(document, dialect)\n"
        "reader.read_tree = broken\n"
        "from llc.runtime.cli import entry\nsys.argv[0] = 'llc'\nsys.exit(entry.main())"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, env=env
        )

    done = run("validate")
    (report,) = tmp_path.glob("llc-crash-*.txt")
    assert (done.returncode, "Traceback" in report.read_text()) == (70, True)
    for shown in (
        "error[internal]: .loops/good.yaml: internal error: ZeroDivisionError: by zero",
        str(report),
    ):
        assert shown in done.stderr
    assert "error[unknown-state]" in done.stderr
    done = run("list", "--json")
    rows = {row["name"]: row["valid"] for row in json.loads(done.stdout)}
    assert done.returncode == 0
    assert (rows["good"], rows["warns"]) == (False, True)


def test_loop_names_are_completed(llc: Llc) -> None:
    """Shell completion offers the loops of the project."""
    env = {"_LLC_COMPLETE": "complete_bash", "COMP_WORDS": "llc run g", "COMP_CWORD": "2"}
    assert run_process(env={**os.environ, **env}).stdout.split() == ["good"]


# --- unwritable streams and unreadable command lines --------------------------------------------


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """llc under a shell, which sets up its streams."""
    line = command.replace("llc", f"{sys.executable} -m llc", 1)
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command",
    ["llc list", "llc compile good", "llc validate good --json", "llc run good --json -q", "llc --version"],
)
@pytest.mark.parametrize(
    ("stream", "reason"), [(">/dev/full", "no space left on device"), (">&-", "standard output is closed")]
)
def test_unwritable_output_is_one_error(llc: Llc, command: str, stream: str, reason: str) -> None:
    """A full disk or a closed standard output: one line, exit code 1."""
    done = shell(f"{command} {stream}")
    assert done.returncode == 1
    assert done.stderr.startswith("error[cannot-write]: ")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_unwritable_help_is_one_error(llc: Llc) -> None:
    """Help on a full disk does not crash."""
    done = shell("llc run --help >/dev/full")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_reader_closed_before_the_output_is_not_an_error(llc: Llc) -> None:
    """A run whose JSON has no reader prints nothing else and keeps its exit code."""
    done = shell("(sleep 1; exec llc run good --json -q; echo) | exec true; exit ${PIPESTATUS[0]}")
    assert done.stderr == ""


@pytest.mark.parametrize(
    "words",
    [
        ["run", "good", "--json", "--bogus"],
        ["run", "good", "--json", "--max-iterations", "0"],
        ["run", "good", "--json", "--context", "x"],
        ["run", "--json"],
        ["resume", "--json"],
    ],
)
def test_usage_error_gives_json(llc: Llc, words: list[str]) -> None:
    """With --json exactly one object goes to stdout, even for an unreadable command line."""
    done = llc(*words)
    assert done.returncode == 2
    outcome = json_object(done)
    assert (outcome["program"], outcome["status"], outcome["error"]["kind"]) == (None, "error", "usage")
    assert outcome["error"]["message"]
    assert done.stderr
