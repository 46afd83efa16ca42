"""Secrets appear neither on disk nor on a terminal, and masking does not change the run."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from in_process import run_llc
from keepers import kill_with_keeper
from waiting import wait_for

from llc.runtime.host import secrets as masking
from llc.runtime.host.errors import UserError
from llc.runtime.host.paths import HISTORY
from llc.runtime.host.secrets import MASK, Secrets, Stream
from llc.runtime.inspection import stop
from llc.runtime.journal import journal
from llc.runtime.runs import program_file, runs
from llc.runtime.runs.lookup import find_unfinished

# Contains the characters that quoting, JSON or a URL would escape.
SECRET = "hunter2'$x\"\\ü&/z"
NAMED = "blue-fish"

LEAKS = """
name: leaks
initial: a
states:
  a:
    action: "echo got $DEPLOY_TOKEN and $COLOUR; echo $PLAIN_TOKEN >&2; echo ${env.DEPLOY_TOKEN} | wc -c"
    capture: out
    evaluate: {type: output_contains, pattern: nothing}
    on_success: done
    on_failure: b
  b:
    action: "echo ${captured.out.output} | tee copy; touch started; while [ ! -e go ]; do sleep 0.05; done"
    next: c
  c:
    action: "printf '%s' ${env.DEPLOY_TOKEN} > sent; python3 -c \\"print('$PLAIN_TOKEN ' * 200000)\\""
    next: done
  done: {terminal: true}
"""


@pytest.fixture
def project(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (project_dir / ".loops" / "leaks.yaml").write_text(LEAKS)
    (project_dir / ".loops" / "config.yaml").write_text("secrets: [COLOUR]\n")
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)
    monkeypatch.setenv("PLAIN_TOKEN", "sk-plain-1234")
    monkeypatch.setenv("COLOUR", NAMED)
    yield project_dir
    stop.stop(stop.live_runs(None), 0.5)
    masking.begin()


def llc(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llc", *words]
    environment = {**os.environ, **env}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


def assert_clean(source: str, text: str) -> None:
    for secret in ("hunter2", "sk-plain", NAMED):
        assert secret not in text, f"{source} contains {secret}"


def assert_no_secret_on_disk(project: Path) -> None:
    for folder, _, names in os.walk(project / ".loops"):
        for name in names:
            assert_clean(name, (Path(folder) / name).read_bytes().decode("utf-8", "replace"))


def test_files_and_output_of_a_run_contain_no_secret(project: Path) -> None:
    """Files, log, progress, `status`, `logs` and `history` are masked; the actions get the real values."""
    run_id = json.loads(llc("run", "leaks", "--background", "--json").stdout)["run"]
    wait_for(lambda: os.path.exists("started"))
    wait_for(lambda: (project / ".loops" / ".running" / run_id / "leaks.live").exists())
    assert_no_secret_on_disk(project)
    for words in (("status",), ("status", "--json"), ("logs", "leaks"), ("logs", "leaks", "--json")):
        shown = llc(*words)
        assert shown.returncode == 0
        assert_clean(" ".join(words), shown.stdout + shown.stderr)
    assert MASK in llc("status").stdout
    (project / "go").touch()
    wait_for(lambda: list(runs.runs_in("", HISTORY)))
    assert_no_secret_on_disk(project)
    assert (project / "sent").read_text() == SECRET
    assert f"got {SECRET} and {NAMED}" in (project / "copy").read_text()
    (run,) = runs.runs_in("", HISTORY)
    assert MASK in Path(run.log).read_text()
    (output,) = Path(run.outputs).glob("*-output.txt")
    assert output.read_text().count(MASK) == 200_000
    for words in (("history", "--json"), ("logs", "leaks"), ("replay", "leaks")):
        shown = llc(*words)
        assert_clean(" ".join(words), shown.stdout + shown.stderr)


def test_a_resumed_run_uses_the_real_value(project: Path) -> None:
    """A killed and resumed run replaces recorded references by the secret."""
    run_id = json.loads(llc("run", "leaks", "--background", "--json").stdout)["run"]
    wait_for(lambda: os.path.exists("started"))
    kill_with_keeper(find_unfinished(run_id).about()["pid"])
    (project / "go").touch()
    done = llc("resume", run_id)
    assert done.returncode == 0, done.stderr
    assert_clean("resume", done.stdout + done.stderr)
    assert (project / "sent").read_text() == SECRET
    assert f"got {SECRET} and {NAMED}" in (project / "copy").read_text()


def test_a_resumed_run_uses_a_changed_secret(project: Path) -> None:
    """A key that was replaced in the meantime does not prevent resuming."""
    run_id = json.loads(llc("run", "leaks", "--background", "--json", DEPLOY_TOKEN="old-secret").stdout)[
        "run"
    ]
    wait_for(lambda: os.path.exists("started"))
    llc("stop", run_id)
    (project / "go").touch()
    assert llc("resume", run_id, "-q", DEPLOY_TOKEN="new-secret").returncode == 0
    assert (project / "sent").read_text() == "new-secret"


@pytest.mark.parametrize(("before", "after"), [("", "sk-plain-1234"), ("sk-plain-1234", "")])
def test_a_text_that_becomes_secret_does_not_change_the_program(
    project: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    """A run can be resumed if recorded text is a secret now, and names the variable if it was a secret
    then.
    """
    (project / ".loops" / "echo.yaml").write_text(
        "name: echo\ninitial: a\nstates:\n"
        "  a: {action: 'echo sk-plain-1234 is printed', capture: x, next: b}\n"
        "  b: {action: ': ${captured.x.output}; touch started; until [ -e go ]; do sleep 1; done', next: z}\n"
        "  z: {terminal: true}\n"
    )
    run_id = json.loads(llc("run", "echo", "--background", "--json", PLAIN_TOKEN=before).stdout)["run"]
    wait_for(lambda: os.path.exists("started"))
    kill_with_keeper(find_unfinished(run_id).about()["pid"])
    (project / "go").touch()
    done = llc("resume", run_id, PLAIN_TOKEN=after)
    if after:
        assert done.returncode == 0, done.stderr
    else:
        assert "the run used the secret `PLAIN_TOKEN`" in done.stderr


def test_a_run_whose_secret_is_missing_is_not_resumed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable; once it is set, the run can be resumed."""
    run_id = json.loads(llc("run", "leaks", "--background", "--json").stdout)["run"]
    wait_for(lambda: os.path.exists("started"))
    llc("stop", run_id)
    (project / "go").touch()
    monkeypatch.delenv("DEPLOY_TOKEN")
    done = llc("resume", run_id)
    assert done.returncode == 1
    assert "the run used the secret `DEPLOY_TOKEN`, which is not set here" in done.stderr
    assert llc("resume", run_id, "-q", DEPLOY_TOKEN=SECRET).returncode == 0


def test_a_secret_in_an_option_is_not_stored(project: Path) -> None:
    """`--context` makes the secret part of the program; it is stored without the secret, and a resumed run
    has it.
    """
    (project / ".loops" / "print.yaml").write_text(
        "name: print\ninitial: a\ncontext: {key: none}\nstates:\n"
        "  a: {action: 'touch started; until [ -e go ]; do sleep 0.05; done', next: b}\n"
        "  b: {action: 'printf %s ${context.key} > sent', next: z}\n"
        "  z: {terminal: true}\n"
    )
    words = ("run", "print", "--context", "key=sk-plain-1234", "--background", "--json")
    run_id = json.loads(llc(*words).stdout)["run"]
    wait_for(lambda: os.path.exists("started"))
    assert_no_secret_on_disk(project)
    assert json.loads(llc("status", run_id, "--json").stdout)["max_iterations"] == 50
    llc("stop", run_id)
    (project / "go").touch()
    refused = llc("resume", run_id, PLAIN_TOKEN="sk-other-5678")
    assert refused.returncode == 1
    assert "error[changed-secret]" in refused.stderr
    assert "the secret `PLAIN_TOKEN`, which it was written with, has changed" in refused.stderr
    done = llc("resume", run_id, "-q")
    assert (done.returncode, (project / "sent").read_text()) == (0, "sk-plain-1234"), done.stderr
    assert_no_secret_on_disk(project)
    assert llc("replay", run_id).returncode == 0
    assert llc("fork", run_id, "--at", "2", "-q").returncode == 0
    assert_no_secret_on_disk(project)


def test_a_secret_in_an_argument_of_a_flow_is_not_stored(project: Path) -> None:
    (project / ".loops" / "length.sexp").write_text('(string-length (string-append "<" key ">"))\n')
    done = llc("run", "length", "--arg", "key=sk-plain-1234", "--json")
    assert json.loads(done.stdout)["value"] == 15
    assert_no_secret_on_disk(project)


@given(st.lists(st.sampled_from([b"\xff\x00", b"one-secret", b"x", "ü".encode()])))
def test_a_program_file_without_secrets_is_restored(parts: list[bytes]) -> None:
    """The bytes around a secret may be anything."""
    data = b"".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masking, "known", Secrets({"ONE": "one-secret"}))
        kept = program_file.without_secrets(data)
        assert b"one-secret" not in kept
        assert program_file.decode(kept, "x") == data


def test_errors_are_masked(project: Path) -> None:
    """A fault's message and backtrace, and the value of a flow as text and as JSON."""
    for code in ('(raise "no $DEPLOY_TOKEN")', "(list 1 $PLAIN)"):
        text = code.replace("$DEPLOY_TOKEN", "sk-plain-1234").replace("$PLAIN", '"sk-plain-1234"')
        for words in (("run", "-e", text), ("run", "-e", text, "--json")):
            done = llc(*words)
            assert_clean(text, done.stdout + done.stderr.replace(text, ""))
            assert MASK in done.stdout + done.stderr


def test_usage_errors_are_masked(project: Path) -> None:
    """A secret in the wrong place of the command line is not repeated."""
    for words in (("run", "leaks", "--sk-plain-1234"), ("status", "--sk-plain-1234"), ("sk-plain-1234",)):
        for json_option in ((), ("--json",)):
            done = llc(*words, *json_option)
            assert done.returncode == 2
            assert_clean(" ".join(words), done.stdout + done.stderr)


def test_run_files_are_private(project: Path) -> None:
    """Every file of a run has mode 0600 and every folder 0700, whatever the umask."""
    before = os.umask(0)
    try:
        (project / "go").touch()
        llc("run", "leaks")
        llc("run", "-e", '(system:execute_shell_command (command "seq 10000"))', "-q")
        llc("history")
    finally:
        os.umask(before)
    for folder, _, names in os.walk(project / ".loops" / ".history"):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        for name in names:
            path = os.path.join(folder, name)
            if name != ".gitignore":
                assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, path


HOSTILE = ("..", "a\nb", "x" * 240, "-rf", "a b;c", "\x1b[2J", "ü", "$(id)")


def run_all_subcommands(path: str, outside: Path) -> None:
    """Run a file, use every subcommand on its run, and remove it; nothing is written outside `.loops/`."""
    done = llc("run", path)
    assert "\x1b" not in done.stdout + done.stderr
    assert set(os.listdir(outside)) == {"project", "cache"}
    assert len(os.listdir(outside / "project")) == 2
    if done.returncode == 2:
        assert "error[bad-name]" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    (run,) = runs.runs_in("", HISTORY)
    assert len(run.id) <= 110
    for words in (("status", path), ("logs", run.id), ("history",), ("clean", "--keep", "0")):
        shown = llc(*words)
        assert shown.returncode == 0, (words, shown.stderr)
        assert "\x1b" not in shown.stdout
    assert os.listdir(HISTORY) == [".gitignore"]


@pytest.mark.parametrize("kind", ["loop", "flow"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_does_not_escape_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """Runs of a loop or flow with any name stay in `.loops/`, and all subcommands accept them."""
    inner = tmp_path / "project"
    (inner / ".loops").mkdir(parents=True)
    (tmp_path / "cache").mkdir()
    monkeypatch.chdir(inner)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if kind == "flow":
        (inner / f"{name}.sexp").write_text("(+ 1 2)")
        run_all_subcommands(f"./{name}.sexp", tmp_path)
    else:
        states = {"s": {"action": "true", "next": "z"}, "z": {"terminal": True}}
        (inner / "loop.yaml").write_text(json.dumps({"name": name, "initial": "s", "states": states}))
        run_all_subcommands("loop.yaml", tmp_path)


@pytest.mark.parametrize("target", ["../../etc", "a\nb", "x" * 5000, "\x1b[2J", "", "."])
def test_a_hostile_target_is_an_unknown_run(project: Path, target: str) -> None:
    """Subcommands that take a run report an unknown run on a readable line."""
    for subcommand in ("status", "logs", "attach", "stop"):
        done = run_llc(subcommand, "--", target)
        assert done.returncode == 2
        assert "error[" in done.stderr
        assert "\x1b" not in done.stderr


# --- laws -------------------------------------------------------------------------------------

texts = st.text(st.sampled_from("abcxyz'\"\\$ \n"), max_size=30)
values = st.text(st.sampled_from("abcxyz'\"\\$"), min_size=4, max_size=8)


@given(st.lists(st.one_of(texts, st.sampled_from([1, 2])), max_size=6), values, values)
def test_split_and_join_are_inverse(parts: list[Any], one: str, two: str) -> None:
    """No part of a split text contains a secret."""
    secrets = Secrets({"ONE": one, "TWO": two})
    text = "".join({1: one, 2: two}.get(part, part) for part in parts)
    split = secrets.split(text)
    assert secrets.join(split) == text
    assert not any(secrets.occur_in(part) for part in split[::2])


@given(texts, st.lists(st.integers(1, 5), max_size=20), values, st.booleans())
def test_a_stream_masks_secrets_in_parts_of_any_length(
    text: str, cuts: list[int], value: str, is_text: bool
) -> None:
    assume(value not in text)
    masking.known = Secrets({"X": value})
    try:
        data: Any = text + value + text
        data = data if is_text else data.encode()
        stream, shown = Stream(is_text), data[:0]
        for cut in cuts:
            part, data = data[:cut], data[cut:]
            shown += stream.feed(part)
        shown += stream.feed(data) + stream.finish()
        shown = shown if is_text else shown.decode()
        assert value not in shown
        assert MASK in shown
    finally:
        masking.known = Secrets({})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts | st.just("see hunter22!") | st.just("hunter22"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_a_journal_restores_values_and_contains_no_secret(value: Any) -> None:
    masking.known = Secrets({"X_TOKEN": "hunter22"})
    try:
        packed = journal.pack({"value": value}, lambda text: {})
        line = journal.seal({"event": "log", **packed})
        assert b"hunter22" not in line
        event = journal.unseal(line[:-1])
        assert event is not None
        assert journal.unpack(event["value"], lambda name, size: "") == value
        hidden = journal.unpack(event["value"], lambda name, size: "", masking.hidden)
        assert "hunter22" not in json.dumps(hidden)
    finally:
        masking.known = Secrets({})


def test_a_long_text_with_a_secret_is_stored_in_parts() -> None:
    """The text around a secret is stored in files; the secret is not."""
    masking.known = Secrets({"X_TOKEN": "hunter22"})
    blobs: dict[str, str] = {}

    def store(text: str) -> dict[str, Any]:
        blobs[str(len(blobs))] = text
        return {"$blob": str(len(blobs) - 1), "size": len(text)}

    try:
        text = "a" * 40_000 + "hunter22" + "b" * 40_000
        packed = journal.pack(text, store)
        assert all("hunter22" not in part for part in blobs.values())
        assert len(blobs) == 2
        assert journal.unpack(packed, lambda name, size: blobs[name]) == text
    finally:
        masking.known = Secrets({})


def test_secrets_are_chosen_by_name_and_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables with well-known names and long values, and the names in the configuration."""
    for name, value in (
        ("MY_API_KEY", "12345678"), ("MY_SECRET", "short"), ("MY_COLOUR", "green"), ("TOKENS", "987654321"),
        ("PGPASSWORD", "postgres-pw"), ("LLC_DB", "postgresql://llc:of-the-database@host/llc"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    secrets = masking.from_environment(["MY_COLOUR"])
    assert secrets.mask("12345678 short green 987654321 postgres-pw") == "*** short *** 987654321 ***"
    assert secrets.mask("postgresql://llc:of-the-database@host/llc") == "postgresql://llc:***@host/llc"
    with pytest.raises(UserError, match="`GONE`"):
        secrets.join(["a", "GONE", "b"])
    lenient = masking.from_environment([], is_lenient=True)
    text = lenient.join(["a ", "GONE", " b"])
    assert lenient.split(text) == ["a ", "GONE", " b"]


def test_source_text_is_not_masked(project: Path) -> None:
    """`fmt` and `compile` print the author's text, even if it contains a secret."""
    text = '(list "sk-plain-1234")\n'
    shown = subprocess.run(
        [sys.executable, "-m", "llc", "fmt", "-"], input=text, capture_output=True, text=True, check=True
    )
    assert shown.stdout == text
    (project / "x.sexp").write_text(text)
    assert "sk-plain-1234" in llc("compile", "x.sexp").stdout


def test_an_internal_error_is_masked(project: Path) -> None:
    """Neither the file with the traceback nor the line that names it contains a secret."""

    code = (
        "import sys; from llc.runtime.cli import entry; from llc.runtime.launch import command, report, run\n"
        "def fail(values):\n"
        "    command.Command(values, report.Report(values)).configure()\n"
        "    raise RuntimeError('sk-plain-1234')\n"
        "run.run = fail; sys.argv = ['llc', 'run', 'leaks', '--context', 'x=sk-plain-1234']\n"
        "sys.exit(entry.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(project)},
    )
    assert done.returncode == 70
    assert_clean("stderr", done.stderr)
    (report,) = project.glob("llc-crash-*")
    assert_clean("report", report.read_text())
