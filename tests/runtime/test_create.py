"""`llc create` from options and descriptions: files, refusals, a local Messages API, pins."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llc.frontend.compile import compile_file
from llc.frontend.loop.natural import pins_in
from llc.runtime.authoring import author, creation, drafts, generation, pins, wizard
from llc.runtime.cli import dispatch
from llc.runtime.cli.table import PARAMETERS
from llc.runtime.host.errors import UserError
from llc.runtime.models.client import ModelClient

Done = subprocess.CompletedProcess[str]
Create = Callable[..., Done]

GOOD = {
    "max_iterations": 5,
    "tools": ["pytest", "/ll:manage_issue bug fix"],
    "goal": "The tests pass",
    "name": "tests-pass",
    "paradigm": "goal",
}
BROKEN = {"paradigm": "goal", "name": "x", "goal": "y", "tool": ["pytest"]}
WORDS = 'paradigm: natural\ndescription: "Run the tests until they pass"\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "project"


@pytest.fixture(scope="module")
def server(answers: Any) -> Iterator[Any]:
    with answers.MessagesServer() as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Any) -> Iterator[ModelClient]:
    """One for all that asks the server: importing the API's client takes more than a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_BASE_URL", server.url)
        patch.setenv("ANTHROPIC_API_KEY", "test-key")
        patch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
        patch.setenv("NO_PROXY", "127.0.0.1")
        client = ModelClient()
        yield client
        client.close()


@pytest.fixture
def model(server: Any) -> Any:
    """What is asked: `model.then(…)` says what it answers, `model.requests` what it was told."""
    server.requests.clear()
    server.answers.clear()
    return server


@pytest.fixture
def create(
    project: Path, client: ModelClient, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Create:
    """`llc create WORDS` without a terminal, in this process."""

    class Kept:
        complete = client.complete

        def close(self) -> None:
            pass

    monkeypatch.setattr(author, "ModelClient", Kept)

    def create(*words: str) -> Done:
        with open(os.devnull) as nothing, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", nothing)
            code = dispatch.command("llc", ["create", *words])
        return subprocess.CompletedProcess(words, code, *capfd.readouterr())

    return create


def process(*words: str) -> Done:
    """llc in a process of its own, without a key."""
    return subprocess.run(
        [sys.executable, "-m", "llc", *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


# --- by options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "yaml"),
    [
        (
            (
                "-p",
                "goal",
                "--goal",
                "No errors",
                "--tool",
                "mypy",
                "--tool",
                "Fix them",
                "--tool",
                "/ll:fix",
            ),
            'paradigm: goal\nname: "no-errors"\ngoal: "No errors"\ntools:\n  - run: "mypy"\n'
            '    failure: [1, 2]\n  - prompt: "Fix them"\n  - "/ll:fix"\n',
        ),
        (
            (
                "-p",
                "convergence",
                "--check",
                "wc -l < x",
                "--toward",
                "3",
                "--using",
                "a",
                "--tolerance",
                "0.5",
            ),
            'paradigm: convergence\nname: "converge-wc"\ncheck: "wc -l < x"\ntoward: 3\nusing: "a"\n'
            "tolerance: 0.5\n",
        ),
        (
            ("-p", "invariants", "--constraint", "t=pytest", "--fix", "t=/ll:fix a=b", "--maintain"),
            'paradigm: invariants\nname: "keep-t"\nconstraints:\n  - name: "t"\n    check:\n'
            '      run: "pytest"\n      failure: [1, 2]\n    fix: "/ll:fix a=b"\nmaintain: true\n',
        ),
        (
            ("-p", "invariants", "--constraint", "t=ruff check", "--fix", "t=Fix the lint errors"),
            'paradigm: invariants\nname: "fix-t"\nconstraints:\n  - name: "t"\n    check: "ruff check"\n'
            '    fix:\n      prompt: "Fix the lint errors"\n',
        ),
        (
            ("-p", "imperative", "--step", "Update the docs", "--until", "cargo test"),
            'paradigm: imperative\nname: "until-cargo"\nsteps:\n  - prompt: "Update the docs"\n'
            'until:\n  check:\n    run: "cargo test"\n    failure: [101]\n',
        ),
        (
            (
                "-p",
                "fsm",
                "--state",
                "a=pytest -q",
                "--state",
                "b=Make the tests pass",
                "--state",
                "z=",
                "--route",
                "a.success=z",
                "--route",
                "a.failure=b",
                "--route",
                "b.next=a",
            ),
            'paradigm: fsm\nname: "a-loop"\ninitial: "a"\nstates:\n  a:\n    action: "pytest -q"\n'
            '    evaluate:\n      type: exit_code\n      failure: [1, 2]\n    on_success: "z"\n'
            '    on_failure: "b"\n  b:\n    action: "Make the tests pass"\n    action_type: prompt\n'
            '    feedback: true\n    next: "a"\n  z:\n    terminal: true\n',
        ),
        (
            ("-p", "imperative", "--step", "a", "--until", "b", "--until-fails", "--backoff", "2"),
            'paradigm: imperative\nname: "until-b"\nsteps: ["a"]\nuntil:\n  check: "b"\n  passes: false\n'
            "backoff: 2\n",
        ),
        (
            (
                "-p",
                "fsm",
                "--state",
                "a=x",
                "--state",
                "z=",
                "--route",
                "a.next=z",
                "--route",
                "z.status=failure",
            ),
            'paradigm: fsm\nname: "a-loop"\ninitial: "a"\nstates:\n  a:\n    action: "x"\n    next: "z"\n'
            "  z:\n    terminal: true\n    status: failure\n",
        ),
    ],
)
def test_each_paradigm_can_be_given_by_options(
    project: Path, create: Create, words: tuple[str, ...], yaml: str
) -> None:
    """The file holds what was said and nothing else, and is a loop."""
    done = create(*words, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["yaml"] == (project / told["path"]).read_text() == yaml
    compile_file(told["path"])


def test_every_paradigm_has_its_options() -> None:
    """The verb, its options and the schema know the same paradigms."""
    from llc.frontend.loop.paradigms import PARADIGMS as KNOWN

    assert set(PARAMETERS["paradigm"][4].split("|")) == set(KNOWN) == set(creation.PARADIGM_OPTIONS)
    assert set(creation._READERS) == set(creation._REQUIRED) == set(KNOWN)
    assert set(wizard._QUESTIONS) - {"fix", "maintain"} == set(KNOWN)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no terminal to ask questions"),
        (("-p", "gaol"), "did you mean `goal`?"),
        (("--goal", "x"), "the paradigm is missing"),
        (("-p", "goal", "--goal", "x", "--yes"), "needs --tool"),
        (("-p", "goal", "--toward", "1"), "--toward belongs to --paradigm convergence"),
        (("-p", "invariants", "--constraint", "a=b"), "the constraint `a` has no fix"),
        (("-p", "invariants", "--fix", "a=b"), "no constraint is called `a`"),
        (("-p", "invariants", "--constraint", "b"), "takes NAME=VALUE"),
        (("-p", "fsm", "--state", "a=", "--route", "b.next=a"), "--route takes STATE.VERDICT=STATE"),
        (("-p", "imperative", "--step", "a", "--until-fails"), "--until"),
        (("-p", "goal", "--goal", "x", "--tool", "true"), "no terminal to confirm it"),
        (("-p", "goal", "--goal", "x", "--tool", "a ${captured.b.output}", "--yes"), "nothing captures `b`"),
        (("-p", "goal", "--goal", "!?", "--tool", "a", "--yes"), "the loop has no name"),
        (("some-loop",), "--pin"),
    ],
)
def test_what_cannot_be_made_is_refused(
    project: Path, create: Create, words: tuple[str, ...], message: str
) -> None:
    """With exit code 2, and without leaving anything behind."""
    done = create(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert list(project.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        *("../x", "/etc/passwd", "a/b", ".hidden", "", "a b", "x\n", "x" * 500),
        *("config", "tools", "x.yaml", "x.fsm", "é" * 79 + "\x00"),
    ],
)
def test_a_name_stays_in_its_folder(project: Path, name: str) -> None:
    """Paths, hidden files, the project's own files and endless names are refused."""
    with pytest.raises(UserError) as caught:
        drafts.check_name(name)
    assert len(caught.value.message) < 200
    assert all(ch.isprintable() for ch in caught.value.message)


def test_a_file_that_is_there_is_kept(project: Path, create: Create) -> None:
    """Unless --force says otherwise; a flow of that name is never hidden."""
    words = ("-p", "goal", "--goal", "x", "--tool", "true", "--yes")
    assert create(*words).returncode == 0
    path = project / ".loops" / "x.yaml"
    path.write_text("mine")
    done = create(*words)
    assert (done.returncode, path.read_text()) == (1, "mine")
    assert "--force replaces it" in done.stderr
    assert create(*words, "--force").returncode == 0
    assert path.read_text() != "mine"
    path.rename(project / ".loops" / "x.sexp")
    assert create(*words, "--force").returncode == 1


def test_printing_saves_nothing(project: Path, create: Create) -> None:
    """The YAML alone is on standard output, for a pipe."""
    done = create("-p", "goal", "--goal", "x", "--tool", "true", "--print")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == 'paradigm: goal\nname: "x"\ngoal: "x"\ntools: ["true"]\n'
    assert list(project.iterdir()) == []


# --- from a description ---------------------------------------------------------------------------


def test_a_model_writes_the_loop(project: Path, create: Create, model: Any, answers: Any) -> None:
    """By the schema that `llc schema` prints; its keys are put in order, what it cost is told."""
    model.then(answers.result({"loop": GOOD}))
    done = create("--describe", "run the tests until they pass", "--yes", "--timeout", "60")
    assert done.returncode == 0, done.stderr
    assert (project / ".loops" / "tests-pass.yaml").read_text() == (
        'paradigm: goal\nname: "tests-pass"\ngoal: "The tests pass"\n'
        'tools: ["pytest", "/ll:manage_issue bug fix"]\nmax_iterations: 5\ntimeout: 60\n'
    )
    (request,) = model.requests
    (tool,) = request["tools"]
    assert request["tool_choice"] == {"type": "tool", "name": "answer"}
    assert tool["input_schema"] == generation.schema()
    assert "protect the tests" in json.dumps(request["system"])
    assert not {"allOf", "anyOf", "oneOf"} & tool["input_schema"].keys()
    assert "run the tests until they pass" in json.dumps(request["messages"])
    assert "(0.0003 USD, 150 tokens" in done.stderr


def test_a_broken_loop_is_repaired(project: Path, create: Create, model: Any, answers: Any) -> None:
    """The model is told what is wrong, with the line it is in; at most twice."""
    model.then(answers.text("no idea"), answers.result({"loop": BROKEN}), answers.result({"loop": GOOD}))
    done = create("--describe", "x", "--yes")
    assert done.returncode == 0, done.stderr
    second, third = (json.dumps(request["messages"]) for request in model.requests[1:])
    assert "the reply contains no loop" in second
    assert "has no key `tool`" in third
    assert "repair 2" in done.stderr
    assert ", 450 tokens)" in done.stderr


def test_a_hopeless_model_is_given_up(project: Path, create: Create, model: Any, answers: Any) -> None:
    """After three tries: what it gave is shown with what is wrong, and nothing is saved."""
    model.then(answers.result({"loop": BROKEN}))
    done = create("--describe", "x", "--yes")
    assert done.returncode == 1
    assert len(model.requests) == 3
    assert "has no key `tool`" in done.stderr
    assert "error[no-loop]" in done.stderr
    assert "in 3 attempts (0.0008 USD, 450 tokens" in done.stderr
    assert list(project.iterdir()) == []


def test_a_model_that_refuses_is_not_asked_again(
    project: Path, create: Create, model: Any, answers: Any
) -> None:
    """Another try would give the same."""
    model.then(answers.text("I cannot help with that", stop_reason="refusal"))
    done = create("--describe", "x", "--yes")
    assert (done.returncode, len(model.requests)) == (1, 1)
    assert "error[refusal]: " in done.stderr


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ({"paradigm": "natural", "description": "again"}, "is not allowed here"),
        ([], "contains no loop"),
        ("paradigm: goal", "needs `goal`"),
        ("{[: not yaml", "contains no loop"),
        (
            {
                "paradigm": "invariants",
                "constraints": [{"name": "$(touch made)", "check": "true", "fix": "true"}],
            },
            "$(touch made)",
        ),
        ({"paradigm": "goal", "goal": "x", "tools": ["a ${raw:captured.x.output}"]}, "nothing captures `x`"),
        ({"paradigm": "goal", "goal": 5, "tools": {}, "name": ["x"]}, "should be"),
    ],
)
def test_replies_of_any_kind_are_survived(
    project: Path, create: Create, model: Any, answers: Any, reply: Any, says: str
) -> None:
    """What is no loop is told to the model, and in the end to the user."""
    model.then(answers.result({"loop": reply}))
    done = create("--describe", "x", "--yes")
    assert (done.returncode, says in done.stderr) == (1, True), done.stderr


def test_what_a_model_writes_is_shown_and_not_run(
    project: Path, create: Create, model: Any, answers: Any
) -> None:
    """Commands that would do harm, characters that would steer the terminal, a name that is a command."""
    harm = {
        "paradigm": "goal",
        "name": "$(touch made); x",
        "goal": "\x1b]0;t\x07",
        "tools": ["touch made \x1b[2J"],
    }
    model.then(answers.result({"loop": harm}))
    done = create("--describe", "x")
    assert (done.returncode, "no terminal to confirm it" in done.stderr) == (2, True), done.stderr
    assert "shell: touch made" in done.stderr
    assert not {"\x1b", "\x07"} & set(done.stderr)
    assert list(project.iterdir()) == []
    assert create("--describe", "x", "--yes").returncode == 0
    (path,) = project.rglob("*.yaml")
    assert path.parent.name == ".loops"
    assert re.fullmatch(r"[\w.-]+", path.name)
    assert not (project / "made").exists()


def test_a_loop_in_words_is_read_too(project: Path, create: Create, model: Any, answers: Any) -> None:
    """A model that cannot be forced to use a tool answers with YAML in a fence."""
    text = "Here it is:\n```yaml\nparadigm: goal\nname: ../../x\ngoal: y\ntools: [pytest]\n```\n"
    model.then(answers.text(text))
    done = create("--describe", "x", "--yes")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (project / ".loops").iterdir()] == ["x.yaml"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda a: a.status(400, "no such model"), "no such model"),
        (lambda a: a.status(429, "slow down", retry_after=0.01), "slow down"),
        (lambda a: a.status(500, "broken", retry_after=0.01), "broken"),
        (lambda a: a.half(a.result({"loop": GOOD})), "connection broke"),
        (lambda a: a.body(b"<html>"), ""),
    ],
)
def test_an_api_that_fails_is_told(
    project: Path, create: Create, model: Any, answers: Any, answer: Any, says: str
) -> None:
    """Exit code 1, the API's own words, what to do instead; nothing is saved."""
    model.then(answer(answers))
    done = create("--describe", "x", "--yes")
    assert (done.returncode, says in done.stderr) == (1, True), done.stderr
    assert "internal" not in done.stderr
    assert list(project.iterdir()) == []


def test_a_time_out_ends_the_call(
    project: Path, create: Create, model: Any, answers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that says nothing is not waited for longer than the limit."""
    monkeypatch.setattr(generation, "TIMEOUT_S", 0.5)
    model.then(answers.stall())
    done = create("--describe", "x", "--yes")
    assert (done.returncode, "no reply within 0.5 s" in done.stderr) == (1, True), done.stderr


def test_a_description_is_bounded(project: Path, create: Create) -> None:
    """Nobody is asked about a book."""
    done = create("--describe", "x" * 30_000, "--yes")
    assert (done.returncode, "the limit is 20,000" in done.stderr) == (2, True)


# --- words that are pinned ------------------------------------------------------------------------


def test_words_are_pinned_and_compiled_without_a_model(
    project: Path, create: Create, model: Any, answers: Any
) -> None:
    """The model is asked once; what it gave is kept beside the words."""
    model.then(answers.result({"loop": GOOD}))
    done = create(
        "-p", "natural", "--description", "Run the tests until they pass", "--name", "green", "--yes"
    )
    assert done.returncode == 0, done.stderr
    loop = compile_file(".loops/green.yaml").loop
    assert loop is not None
    assert loop.states["evaluate"].action == "pytest"
    assert len(model.requests) == 1
    done = create("--pin")
    assert (done.returncode, done.stdout) == (
        0,
        ".loops/green.yaml is already pinned in .loops/natural.lock\n",
    )
    assert len(model.requests) == 1


def test_pinning_keeps_the_other_pins(project: Path, create: Create, model: Any, answers: Any) -> None:
    """Of the loop itself the old pin goes, those of other loops stay."""
    loops = project / ".loops"
    loops.mkdir()
    (loops / "a.yaml").write_text(WORDS)
    (loops / "b.yaml").write_text(WORDS.replace("Run", "Walk"))
    model.then(answers.result({"loop": GOOD}))
    assert create("--pin", "--yes").returncode == 0
    (loops / "b.yaml").write_text(WORDS.replace("Run", "Crawl"))
    assert create("--pin", "b", "--yes").returncode == 0
    text = (loops / "natural.lock").read_text()
    assert (text.count("sha256-"), text.count('loop: "a"'), text.count('loop: "b"')) == (2, 1, 1)
    assert create("--pin", "--yes", "--force").returncode == 0
    assert len(model.requests) == 5


def test_pins_that_are_made_at_once_are_all_kept(project: Path) -> None:
    """Whoever pins waits for those who do so already."""
    loops = project / ".loops"
    loops.mkdir()
    children = []
    for name in "abcdefgh":
        (loops / f"{name}.yaml").write_text(WORDS.replace("Run", f"Run {name}"))
        child = os.fork()
        if child == 0:
            try:
                draft = drafts.Draft(name, "goal", "paradigm: goal\n", None)
                pins.pin(f".loops/{name}.yaml", generation.GeneratedLoop(draft, "m", None))
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
    assert [pin.loop for pin in pins_in(".loops/natural.lock")] == list("abcdefgh")


def test_without_a_key_nothing_is_pinned(project: Path) -> None:
    """And compiling says what to do."""
    (project / ".loops").mkdir()
    (project / ".loops" / "a.yaml").write_text(WORDS)
    done = process("create", "--pin", "--yes")
    assert (done.returncode, "no API key" in done.stderr) == (1, True)
    done = process("run", "a")
    assert (done.returncode, "llc create --pin .loops/a.yaml" in done.stderr) == (2, True)
    assert [path.name for path in (project / ".loops").iterdir()] == ["a.yaml"]
    assert process("create", "--pin", "nothing").returncode == 2
