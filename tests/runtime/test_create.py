"""`llc create` from options and descriptions: files, refusals, a local Messages API, pinned descriptions."""

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

Completed = subprocess.CompletedProcess[str]
Create = Callable[..., Completed]

VALID_LOOP = {
    "max_iterations": 5,
    "tools": ["pytest", "/ll:manage_issue bug fix"],
    "goal": "The tests pass",
    "name": "tests-pass",
    "paradigm": "goal",
}
INVALID_LOOP = {"paradigm": "goal", "name": "x", "goal": "y", "tool": ["pytest"]}
DESCRIPTION = 'paradigm: natural\ndescription: "Run the tests until they pass"\n'


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
    """Shared by all tests that call the server: importing the API client takes more than a second."""
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
    """The model server: `model.then(…)` sets its replies, `model.requests` has the received requests."""
    server.requests.clear()
    server.answers.clear()
    return server


@pytest.fixture
def create(
    project: Path, client: ModelClient, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Create:
    """`llc create WORDS` without a terminal, in this process."""

    class SharedClient:
        complete = client.complete

        def close(self) -> None:
            pass

    monkeypatch.setattr(author, "ModelClient", SharedClient)

    def create(*words: str) -> Completed:
        with open(os.devnull) as empty, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", empty)
            code = dispatch.command("llc", ["create", *words])
        return subprocess.CompletedProcess(words, code, *capfd.readouterr())

    return create


def run_process(*words: str) -> Completed:
    """Run llc in its own process, without a key."""
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
def test_options_create_a_loop_of_each_paradigm(
    project: Path, create: Create, words: tuple[str, ...], yaml: str
) -> None:
    """The file has the given options and nothing else, and compiles."""
    completed = create(*words, "--yes", "--json")
    assert completed.returncode == 0, completed.stderr
    report = json.loads(completed.stdout)
    assert report["yaml"] == (project / report["path"]).read_text() == yaml
    compile_file(report["path"])


def test_every_paradigm_has_its_options() -> None:
    """The subcommand, its options and the schema have the same paradigms."""
    from llc.frontend.loop.paradigms import PARADIGMS

    assert set(PARAMETERS["paradigm"][4].split("|")) == set(PARADIGMS) == set(creation.PARADIGM_OPTIONS)
    assert set(creation._READERS) == set(creation._REQUIRED) == set(PARADIGMS)
    assert set(wizard._QUESTIONS) - {"fix", "maintain"} == set(PARADIGMS)


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
        (("-p", "goal", "--goal", "x", "--tool", "a ${captured.b.output}", "--yes"), "no state captures `b`"),
        (("-p", "goal", "--goal", "!?", "--tool", "a", "--yes"), "the loop has no name"),
        (("some-loop",), "--pin"),
    ],
)
def test_invalid_options_are_refused(
    project: Path, create: Create, words: tuple[str, ...], message: str
) -> None:
    """The exit code is 2, and no file is left."""
    completed = create(*words)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert message in completed.stderr
    assert list(project.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        *("../x", "/etc/passwd", "a/b", ".hidden", "", "a b", "x\n", "x" * 500),
        *("config", "tools", "x.yaml", "x.fsm", "é" * 79 + "\x00"),
    ],
)
def test_unsafe_names_are_refused(project: Path, name: str) -> None:
    """Paths, hidden files, the project's own files and very long names are refused."""
    with pytest.raises(UserError) as caught:
        drafts.check_name(name)
    assert len(caught.value.message) < 200
    assert all(ch.isprintable() for ch in caught.value.message)


def test_existing_file_is_kept(project: Path, create: Create) -> None:
    """`--force` replaces the file, but never hides a flow of that name."""
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


def test_print_saves_nothing(project: Path, create: Create) -> None:
    """Standard output has only the YAML, for a pipe."""
    done = create("-p", "goal", "--goal", "x", "--tool", "true", "--print")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == 'paradigm: goal\nname: "x"\ngoal: "x"\ntools: ["true"]\n'
    assert list(project.iterdir()) == []


# --- from a description ---------------------------------------------------------------------------


def test_model_writes_the_loop(project: Path, create: Create, model: Any, answers: Any) -> None:
    """The request has the schema that `llc schema` prints; the keys are put in order, the cost is shown."""
    model.then(answers.result({"loop": VALID_LOOP}))
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


def test_invalid_loop_is_repaired_by_the_model(
    project: Path, create: Create, model: Any, answers: Any
) -> None:
    """The model gets the errors with their lines; at most two repairs are tried."""
    model.then(
        answers.text("no idea"), answers.result({"loop": INVALID_LOOP}), answers.result({"loop": VALID_LOOP})
    )
    done = create("--describe", "x", "--yes")
    assert done.returncode == 0, done.stderr
    second, third = (json.dumps(request["messages"]) for request in model.requests[1:])
    assert "the reply contains no loop" in second
    assert "has no key `tool`" in third
    assert "repair 2" in done.stderr
    assert ", 450 tokens)" in done.stderr


def test_number_of_repairs_is_limited(project: Path, create: Create, model: Any, answers: Any) -> None:
    """After three attempts, the last loop and its errors are shown, and nothing is saved."""
    model.then(answers.result({"loop": INVALID_LOOP}))
    done = create("--describe", "x", "--yes")
    assert done.returncode == 1
    assert len(model.requests) == 3
    assert "has no key `tool`" in done.stderr
    assert "error[no-loop]" in done.stderr
    assert "in 3 attempts (0.0008 USD, 450 tokens" in done.stderr
    assert list(project.iterdir()) == []


def test_refusal_is_not_retried(project: Path, create: Create, model: Any, answers: Any) -> None:
    """A second attempt would give the same result."""
    model.then(answers.text("I cannot help with that", stop_reason="refusal"))
    done = create("--describe", "x", "--yes")
    assert (done.returncode, len(model.requests)) == (1, 1)
    assert "error[refusal]: " in done.stderr


@pytest.mark.parametrize(
    ("reply", "message"),
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
        ({"paradigm": "goal", "goal": "x", "tools": ["a ${raw:captured.x.output}"]}, "no state captures `x`"),
        ({"paradigm": "goal", "goal": 5, "tools": {}, "name": ["x"]}, "should be"),
    ],
)
def test_reply_that_is_not_a_loop_is_reported(
    project: Path, create: Create, model: Any, answers: Any, reply: Any, message: str
) -> None:
    """The model, and finally the user, gets the reason why a reply is not a loop."""
    model.then(answers.result({"loop": reply}))
    completed = create("--describe", "x", "--yes")
    assert (completed.returncode, message in completed.stderr) == (1, True), completed.stderr


def test_generated_loop_is_shown_and_not_run(project: Path, create: Create, model: Any, answers: Any) -> None:
    """Harmful commands, terminal control characters, and a name that is a command."""
    hostile = {
        "paradigm": "goal",
        "name": "$(touch made); x",
        "goal": "\x1b]0;t\x07",
        "tools": ["touch made \x1b[2J"],
    }
    model.then(answers.result({"loop": hostile}))
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


def test_loop_in_a_text_reply_is_read(project: Path, create: Create, model: Any, answers: Any) -> None:
    """A model that cannot be forced to use a tool replies with YAML in a code fence."""
    text = "Here it is:\n```yaml\nparadigm: goal\nname: ../../x\ngoal: y\ntools: [pytest]\n```\n"
    model.then(answers.text(text))
    done = create("--describe", "x", "--yes")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (project / ".loops").iterdir()] == ["x.yaml"]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (lambda a: a.status(400, "no such model"), "no such model"),
        (lambda a: a.status(429, "slow down", retry_after=0.01), "slow down"),
        (lambda a: a.status(500, "broken", retry_after=0.01), "broken"),
        (lambda a: a.half(a.result({"loop": VALID_LOOP})), "connection broke"),
        (lambda a: a.body(b"<html>"), ""),
    ],
)
def test_api_error_is_reported(
    project: Path, create: Create, model: Any, answers: Any, reply: Any, message: str
) -> None:
    """The exit code is 1, the API's message and a remedy are shown, nothing is saved."""
    model.then(reply(answers))
    completed = create("--describe", "x", "--yes")
    assert (completed.returncode, message in completed.stderr) == (1, True), completed.stderr
    assert "internal" not in completed.stderr
    assert list(project.iterdir()) == []


def test_timeout_ends_the_call(
    project: Path, create: Create, model: Any, answers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "TIMEOUT_S", 0.5)
    model.then(answers.stall())
    done = create("--describe", "x", "--yes")
    assert (done.returncode, "no reply within 0.5 s" in done.stderr) == (1, True), done.stderr


def test_length_of_a_description_is_limited(project: Path, create: Create) -> None:
    """No model is called for an oversized description."""
    done = create("--describe", "x" * 30_000, "--yes")
    assert (done.returncode, "the limit is 20,000" in done.stderr) == (2, True)


# --- words that are pinned ------------------------------------------------------------------------


def test_pinned_description_compiles_without_a_model(
    project: Path, create: Create, model: Any, answers: Any
) -> None:
    """The model is called once; its loop is kept in `natural.lock`."""
    model.then(answers.result({"loop": VALID_LOOP}))
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


def test_pinning_keeps_pins_of_other_loops(project: Path, create: Create, model: Any, answers: Any) -> None:
    """A loop's own old pin is replaced; the pins of other loops remain."""
    loops = project / ".loops"
    loops.mkdir()
    (loops / "a.yaml").write_text(DESCRIPTION)
    (loops / "b.yaml").write_text(DESCRIPTION.replace("Run", "Walk"))
    model.then(answers.result({"loop": VALID_LOOP}))
    assert create("--pin", "--yes").returncode == 0
    (loops / "b.yaml").write_text(DESCRIPTION.replace("Run", "Crawl"))
    assert create("--pin", "b", "--yes").returncode == 0
    text = (loops / "natural.lock").read_text()
    assert (text.count("sha256-"), text.count('loop: "a"'), text.count('loop: "b"')) == (2, 1, 1)
    assert create("--pin", "--yes", "--force").returncode == 0
    assert len(model.requests) == 5


def test_concurrent_pins_are_all_kept(project: Path) -> None:
    """Pinning waits for other processes that pin."""
    loops = project / ".loops"
    loops.mkdir()
    children = []
    for name in "abcdefgh":
        (loops / f"{name}.yaml").write_text(DESCRIPTION.replace("Run", f"Run {name}"))
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


def test_pinning_needs_a_key(project: Path) -> None:
    """Compiling such a loop states the command to use."""
    (project / ".loops").mkdir()
    (project / ".loops" / "a.yaml").write_text(DESCRIPTION)
    done = run_process("create", "--pin", "--yes")
    assert (done.returncode, "no API key" in done.stderr) == (1, True)
    done = run_process("run", "a")
    assert (done.returncode, "llc create --pin .loops/a.yaml" in done.stderr) == (2, True)
    assert [path.name for path in (project / ".loops").iterdir()] == ["a.yaml"]
    assert run_process("create", "--pin", "nothing").returncode == 2
