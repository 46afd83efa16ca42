"""`llc create --from`: files of the ready loops, golden cases, parameters, questions, refusals.

A golden case of `tests/golden/ready/` consists of a scripted world and the record of the run in it.
`pytest --update` rewrites the records.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from terminals import Dialogue

from llc.frontend.compile import compile_file
from llc.ir.diagnostics import CompileError
from llc.runtime.authoring import ready_loops
from llc.runtime.cli import dispatch
from llc.stdlib import READY_LOOPS

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "ready"
WORLDS = sorted(GOLDEN.glob("*/*.world.yaml"))
Llc = Callable[..., subprocess.CompletedProcess[str]]
# The end of a run by the name of its case, and its exit code.
ENDS = {
    "success": ("success", 0),
    "repair": ("success", 0),
    "autofix": ("success", 0),
    "no-repository": ("success", 0),
    "give-up": ("limit", 3),
    "error": ("error", 1),
    "broken-before": ("failure", 1),
    "not-updated": ("failure", 1),
    "not-listed": ("failure", 1),
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "project"


@pytest.fixture
def llc(project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Llc:
    """A command without a terminal, in this process."""

    def llc(*words: str) -> subprocess.CompletedProcess[str]:
        with open(os.devnull) as nothing, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", nothing)
            code = dispatch.command("llc", list(words))
        return subprocess.CompletedProcess(words, code, *capfd.readouterr())

    return llc


def required_options(name: str) -> list[str]:
    """The options without which a ready loop cannot be created."""
    parameters = ready_loops.load(name).parameters.values()
    return [
        word
        for parameter in parameters
        if parameter.sample
        for word in ("--set", f"{parameter.name}={parameter.sample}")
    ]


def create(llc: Llc, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    done = llc("create", "--from", name, *required_options(name), *words)
    assert done.returncode == 0, done.stderr
    return done


def test_the_list_names_the_files() -> None:
    """`READY_LOOPS` and the folder have the same names, and each ready loop has its golden cases."""
    assert sorted(READY_LOOPS) == sorted(path.stem for path in (ROOT / "stdlib/ready").iterdir())
    for name in READY_LOOPS:
        cases = {path.name.removesuffix(".world.yaml") for path in WORLDS if path.parent.name == name}
        assert cases >= {"success", "repair", "give-up", "error"}


@pytest.mark.parametrize("name", READY_LOOPS)
@pytest.mark.parametrize(
    "marker",
    [
        "",
        "uv.lock",
        "pyproject.toml",
        "package.json",
        "tsconfig.json",
        "Cargo.toml",
        "go.mod",
        "docs/conf.py",
    ],
)
def test_every_ready_loop_is_valid(project: Path, llc: Llc, name: str, marker: str) -> None:
    """Without a warning, for all tools of a project, and with limits."""
    if marker:
        (project / marker).parent.mkdir(exist_ok=True)
        (project / marker).touch()
    create(llc, name)
    done = llc("validate", "--strict")
    assert done.returncode == 0, done.stderr
    compiled = compile_file(f".loops/{name}.yaml")
    assert not compiled.diagnostics
    limits = compiled.program.meta.limits
    assert limits.budget_usd
    assert limits.max_iterations
    assert limits.timeout_ms


@pytest.mark.parametrize("name", READY_LOOPS)
def test_golden_cases(project: Path, llc: Llc, update: bool, name: str) -> None:
    """The recorded runs are identical to those of the present ready loop."""
    create(llc, name, "--set", "rounds=4")
    for world in (path for path in WORLDS if path.parent.name == name):
        case = world.name.removesuffix(".world.yaml")
        record = world.with_name(f"{case}.yaml")
        if update:
            shutil.copy(world, project / "world.yaml")
            llc("run", name, "--script", "world.yaml", "--quiet", "--record", "new.yaml")
            shutil.move(project / "new.yaml", record)
        assert record.exists(), f"no record of {world}: pytest --update {__file__}"
        (project / ".loops/tests").mkdir(exist_ok=True)
        shutil.copy(record, project / ".loops/tests")
    done = llc("test", "--json")
    output = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    assert output["passed"] == len(output["cases"])


@pytest.mark.parametrize("world", WORLDS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_scripted_ends(project: Path, llc: Llc, world: Path) -> None:
    """A case ends as its name says; the agent is called only if there is something to repair."""
    name, case = world.parent.name, world.name.removesuffix(".world.yaml")
    create(llc, name, "--set", "rounds=4")
    shutil.copy(world, project / "world.yaml")
    done = llc("run", name, "--script", "world.yaml", "--quiet", "--json")
    output = json.loads(done.stdout)
    assert (output["status"], done.returncode) == ENDS[case], done.stderr
    (journal,) = project.glob(".loops/.history/*/*.events.jsonl")
    assert ('"kind":"agent"' in journal.read_text()) == (case in ("repair", "give-up"))


@pytest.mark.parametrize("name", ["tests", "types", "lint", "docs-drift", "dependency-bump"])
def test_the_limit_is_reached_after_a_check(project: Path, llc: Llc, name: str) -> None:
    """Each repair is checked; `rounds` is the number of repairs."""
    create(llc, name, "--set", "rounds=4")
    shutil.copy(GOLDEN / name / "give-up.world.yaml", project / "world.yaml")
    assert llc("run", name, "--script", "world.yaml", "--quiet").returncode == 3
    (journal,) = project.glob(".loops/.history/*/*.events.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    entered = [event["state"] for event in events if event["event"] == "state_enter"]
    assert entered[-1] == "verify"
    assert entered.count("repair") == 4


def test_repairs_that_change_nothing_end_early(
    project: Path, llc: Llc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that changes nothing is called three times, although `rounds` allows more."""
    agent = project.parent / "bin" / "claude"
    agent.parent.mkdir()
    output = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "session_id": "s"}
    output |= {
        "result": "I looked.",
        "total_cost_usd": 0.01,
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }
    agent.write_text(f"#!/bin/sh\necho '{json.dumps(output)}'\n")
    agent.chmod(0o755)
    monkeypatch.setenv("PATH", f"{agent.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_DATA_HOME", str(project.parent / "data"))
    create(llc, "tests", "--set", "check=false", "--set", "rounds=9")
    outcome = json.loads(llc("run", "tests", "--json", "--no-preflight").stdout)
    assert (outcome["status"], outcome["terminated_by"]) == ("limit", "stall")
    (journal,) = project.glob(".loops/.h*/*/*.events.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    assert sum(event.get("what") == "final" for event in events) == 3


def test_repairs_of_tests_are_bounded(project: Path, llc: Llc) -> None:
    """By their own limit, since a sweep has many iterations."""
    create(llc, "review-sweep", "--set", "repairs=2")
    shutil.copy(GOLDEN / "review-sweep" / "give-up.world.yaml", project / "world.yaml")
    done = llc("run", "review-sweep", "--script", "world.yaml", "--quiet", "--json")
    assert (json.loads(done.stdout)["terminated_by"], done.returncode) == ("budget", 3)
    (journal,) = project.glob(".loops/.history/*/*.events.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    agent_calls = {event["seq"] for event in events if event.get("kind") == "agent"}
    assert len(agent_calls) == 3  # one review, two repairs


# --- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "name", "expected"),
    [
        (["pyproject.toml"], "tests", ("pytest -q", (1, 2))),
        (["package.json"], "tests", ("npm test", (1,))),
        (["package.json", "pnpm-lock.yaml"], "tests", ("pnpm test", (1,))),
        (["pyproject.toml", "uv.lock"], "tests", ("uv run pytest -q", (1, 2))),
        (["Cargo.toml"], "tests", ("cargo test", (101,))),
        (["go.mod"], "tests", ("go test ./...", (1, 2))),
        (["src/thing/__init__.py"], "types", ("mypy src", (1, 2))),
        (["tsconfig.json", "package.json"], "types", ("npx tsc --noEmit", (1, 2))),
        (["package.json"], "lint", ("npx eslint .", (1,))),
        ([], "lint", ("ruff check .", (1,))),
    ],
)
def test_the_tool_follows_from_the_files(
    project: Path, files: list[str], name: str, expected: tuple[str, tuple[int, ...]]
) -> None:
    """The files of the project determine the command and its exit codes."""
    for file in files:
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).touch()
    check = ready_loops.choose(ready_loops.load(name), {})["check"]
    assert (check.run, check.failure) == expected


@pytest.mark.parametrize(
    ("name", "command", "failure", "more"),
    [
        ("tests", "pytest -q tests/unit", (1, 2), {}),
        ("tests", "python -m pytest", (1, 2), {}),
        ("tests", "cargo test --lib", (101,), {}),
        ("tests", "CI=1 uv run -- pytest -x", (1, 2), {}),
        ("tests", "./run-tests", (1,), {}),
        ("tests", "echo 'unclosed", (1,), {}),
        ("lint", "npx eslint src", (1,), {"autofix": "npx eslint --fix ."}),
        ("lint", "flake8", (1,), {"autofix": "true"}),
    ],
)
def test_a_given_command_determines_related_values(
    project: Path, name: str, command: str, failure: tuple[int, ...], more: dict[str, str]
) -> None:
    """Exit codes and related commands are those of the given program, not of the project's files."""
    (project / "pyproject.toml").touch()
    values = ready_loops.choose(ready_loops.load(name), {"check": command})
    assert (values["check"].run, values["check"].failure) == (command, failure)
    assert {key: values[key] for key in more} == more


@pytest.mark.parametrize(
    "value", ["a'b\"c: {x} # y", "- [", "two\nlines", "${HOME} $(id) `id`", "é 漢", "{{usd}}", "x" * 5000]
)
def test_any_text_is_a_value(project: Path, llc: Llc, value: str) -> None:
    """The file has it as one YAML string."""
    create(llc, "migration", "--set", f"change={value}")
    from llc.frontend.source.files import read_source
    from llc.frontend.source.yaml_tree import read_document

    document = read_document(read_source(".loops/migration.yaml"))
    assert document.root is not None
    assert document.plain(document.root)["context"]["change"] == value


def test_create_prints_how_to_run_the_loop(project: Path, llc: Llc) -> None:
    """The output has the name, the command, the cost limit and the page of the documentation."""
    done = create(llc, "lint", "--name", "tidy", "--set", "usd=0.5")
    assert 'name: "tidy"' in (project / ".loops/tidy.yaml").read_text()
    for words in ("saved .loops/tidy.yaml", "llc run tidy", "0.5 USD", "6 iterations", "spec/ready.md"):
        assert words in done.stdout
    output = json.loads(create(llc, "lint", "--json").stdout)
    assert output["path"] == ".loops/lint.yaml"
    assert output["parameters"]["check"] == "ruff check ."
    assert output["limits"] == {"usd": 2, "iterations": 6}
    assert (project / output["path"]).read_text() == output["yaml"]


def test_ready_loops_are_listed(project: Path, llc: Llc) -> None:
    """One line for each; no file is written."""
    done = llc("create", "--from")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[: len(READY_LOOPS)]] == list(READY_LOOPS)
    assert [row["name"] for row in json.loads(llc("create", "--from", "--json").stdout)] == list(READY_LOOPS)
    assert list(project.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lnt",), "did you mean `lint`?"),
        (("\x1b[2J" + "x" * 500,), "no ready loop is called"),
        (("../../x",), "error[unknown-ready-loop]"),
        (("lint", "types"), "takes one ready loop, not 2"),
        (("migration",), "needs values for `find` and `change`"),
        (("lint", "--set", "chek=x"), "did you mean `check`?"),
        (("lint", "--set", "check"), "--set takes NAME=VALUE"),
        (("lint", "--set", "check= "), "enter a text"),
        (("lint", "--set", "check=a\x1bb"), "control characters"),
        (("lint", "--set", "check=" + "x" * 30_000), "longer than 20,000 characters"),
        (("lint", "--set", "usd=much"), "enter a number greater than 0"),
        (("lint", "--set", "usd=-1"), "enter a number greater than 0"),
        (("lint", "--set", "usd=.nan"), "enter a number greater than 0"),
        (("lint", "--set", "rounds=2.5"), "enter a whole number"),
        (("lint", "--set", "rounds=" + "9" * 5000), "enter a number greater than 0"),
        (("lint", "--goal", "x"), "--goal cannot be combined with --from"),
        (("lint", "--pin"), "--pin cannot be combined with --from"),
        (("lint", "--name", "a/b"), "cannot be called"),
        (("lint", "--set", "check=a ${captured.b.output}"), "no state captures `b`"),
    ],
)
def test_invalid_options_are_refused(project: Path, llc: Llc, words: tuple[str, ...], message: str) -> None:
    """With exit code 2, one message without control characters, and no file."""
    done = llc("create", "--from", *words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert message in done.stderr
    assert "\x1b" not in done.stderr
    assert len(done.stderr) < 2000
    assert list(project.iterdir()) == []


def test_an_existing_file_is_kept(project: Path, llc: Llc) -> None:
    """Without a terminal it is an error, unless `--force` is given."""
    create(llc, "lint")
    (project / ".loops/lint.yaml").write_text("mine")
    done = llc("create", "--from", "lint")
    assert done.returncode == 1
    assert "--force replaces it" in done.stderr
    assert (project / ".loops/lint.yaml").read_text() == "mine"
    create(llc, "lint", "--force")
    assert (project / ".loops/lint.yaml").read_text() != "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("summary: x", "a ready loop needs `about`"),
        ("- a", "should be a mapping"),
        ("summary: [", ""),
        ("loop: {}", "`loop` should be a text"),
        ("parameters: {a: 1}", "the parameter `a` should be a mapping"),
        ("tools: [{files: [], set: {a: {run: x, failure: [999]}}}]", "at most 255"),
    ],
)
def test_a_malformed_file_is_reported(text: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        ready_loops.read(text, "x.yaml")
    assert message in str(caught.value)


# --- questions ------------------------------------------------------------------------------------


def test_questions_on_a_terminal(project: Path) -> None:
    """Missing values are asked for, with the project's tool as the default; related values follow the
    answer.
    """
    (project / "pyproject.toml").touch()
    t = Dialogue("create", "--from", "lint")
    t.answer("finds lint errors", "\x15npx eslint src\r")
    t.answer("own fixes", "\r")
    assert t.end() == 0
    text = (project / ".loops/lint.yaml").read_text()
    assert 'check: "npx eslint src"' in text
    assert 'autofix: "npx eslint --fix ."' in text
    second = Dialogue("create", "--from", "lint", "--set", "check=x", "--set", "autofix=y")
    second.answer(r"exists. Replace it\?", "n\r")
    second.answer("Another name", "other\r")
    assert second.end() == 0
    assert 'check: "x"' in (project / ".loops/other.yaml").read_text()
    assert (project / ".loops/lint.yaml").read_text() == text


def test_the_wizard_offers_ready_loops(project: Path) -> None:
    """Under "Other…"; the questions of the ready loop follow."""
    t = Dialogue("create")
    t.answer("What kind of automation loop", "5\r")
    t.answer("Which form should the loop have", "5\r")
    t.answer("Which one", "2\r")
    t.answer("The command that checks types", "\r")
    assert t.end() == 0
    assert 'check: "mypy ."' in (project / ".loops/types.yaml").read_text()
    assert "it may cost: 3 USD" in t.plain


def test_an_interrupted_dialogue_saves_nothing(project: Path) -> None:
    t = Dialogue("create", "--from", "migration")
    t.answer("places to migrate.*such as", "\x03")
    assert t.end() == 130
    assert "nothing was saved" in t.plain
    assert list(project.iterdir()) == []
