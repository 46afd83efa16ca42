"""Workspaces: a run works on a checkout of a repository, on any machine, and returns a branch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import postgres
import pytest
from clusters import LIMIT_S, Cluster
from fork_server import Process

from llc.runtime.trees import workspace
from llc.runtime.trees.tree import NoTree

LOOP = """
name: job
initial: one
scope: [src]
states:
  one: {{action: '{}', next: two}}
  two: {{action: '{}', next: done}}
  done: {{terminal: true}}
"""


def git(folder: Path, *words: str) -> str:
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return subprocess.run(
        ["git", *words],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, **identity},
    ).stdout.strip()


class Machines(Cluster):
    """A repository, a user's clone of it, and the folders of two workers without shared files."""

    def __init__(self, folder: Path, url: str) -> None:
        self.origin = folder / "origin.git"
        user = folder / "user" / "app"
        user.mkdir(parents=True)
        git(folder, "init", "-q", "--bare", "-b", "main", str(self.origin))
        super().__init__(user, url)
        git(user, "init", "-q", "-b", "main")
        git(user, "remote", "add", "origin", str(self.origin))
        (user / ".gitignore").write_text("ignored\n.loops/.*\nworker-*\n")
        (user / "file").write_text("committed\n")
        self.configure("workspace: {}\n")
        git(user, "add", "--all")
        git(user, "commit", "-q", "-m", "first")
        git(user, "push", "-q", "origin", "main")
        self.places = [folder / name / "app" for name in ("a", "b")]
        for place in self.places:
            (place / ".loops").mkdir(parents=True)
        self.signals = folder / "signals"
        self.signals.mkdir()

    def configure(self, text: str) -> None:
        (self.folder / ".loops/config.yaml").write_text(text)

    def write(self, first: str, second: str) -> None:
        (self.folder / ".loops/job.yaml").write_text(LOOP.format(first, second))

    def worker(self, number: int, *words: str) -> Process | subprocess.Popen[str]:
        return self.start(*words, folder=self.places[number])

    def output(self) -> str:
        """Output of all workers."""
        return "".join(path.read_text() for path in sorted(self.folder.glob("worker-*.txt")))

    def branch(self, run: str, path: str) -> str:
        """A file of the result."""
        return git(self.origin, "show", f"llc/{run}:{path}")

    def wait_for(self, name: str) -> str:
        """A command that waits until the test creates the file `name`, and signals that it waits."""
        return f"touch {self.signals}/{name}.waits; while [ ! -e {self.signals}/{name} ]; do sleep 0.02; done"

    def await_signal(self, name: str) -> None:
        postgres.until((self.signals / f"{name}.waits").exists)


@pytest.fixture
def machines(tmp_path: Path, database: str) -> Iterator[Machines]:
    made = Machines(tmp_path, database)
    yield made
    made.close()


def test_uncommitted_files_are_sent_and_a_branch_is_returned(machines: Machines) -> None:
    """The run sees the files at its submission, in its own folder."""
    machines.write("cat file new > both; rm file", "echo more >> new")
    (machines.folder / "file").write_text("changed\n")
    (machines.folder / "new").write_text("untracked\n")
    (machines.folder / "ignored").write_text("secret\n")
    before = git(machines.folder, "status", "--porcelain"), git(machines.folder, "count-objects")
    run = machines.submit("job")
    assert (git(machines.folder, "status", "--porcelain"), git(machines.folder, "count-objects")) == before
    (machines.folder / "file").write_text("later\n")
    machines.worker(0)
    assert machines.await_status(run)["outcome"] == "success"
    assert machines.branch(run, "both") == "changed\nuntracked"
    assert machines.branch(run, "new") == "untracked\nmore"
    names = git(machines.origin, "ls-tree", "--name-only", f"llc/{run}").split()
    assert sorted(names) == [".gitignore", ".loops", "both", "new"]
    assert (
        git(machines.origin, "log", "--format=%an %s", f"llc/{run}") == f"llc llc: {run}: success\na@b first"
    )
    assert os.listdir(machines.places[0]) == [".loops"]
    postgres.until(lambda: f"its files are in the branch llc/{run}" in machines.output())


def test_runs_of_a_batch_have_separate_checkouts(machines: Machines) -> None:
    """`batch --on`: each run returns its own branch."""
    machines.write("echo $LLC_RUN_ID >> file", "true")
    jobs = machines.folder / "two.jsonl"
    jobs.write_text(2 * (json.dumps({"loop": "job", "scope": []}) + "\n"))
    result = machines.llc("batch", str(jobs), "--on", machines.url)
    assert result.returncode == 0, result.stderr
    machines.worker(0)
    runs = [run for (run,) in machines.database.execute("select id from runs").fetchall()]
    assert len(runs) == 2
    for run in runs:
        assert machines.await_status(run)["outcome"] == "success"
        assert machines.branch(run, "file") == f"committed\n{run}"


def test_the_changes_of_a_run_are_shown_from_anywhere(
    machines: Machines, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`llc diff --db` of a run that two machines have driven, in an empty folder."""
    for place in machines.places:
        (place / ".loops/config.yaml").write_text("record_files: all\n")
    (machines.folder / "file").write_text("dirty\n")
    machines.write(
        "echo one > added; mkdir -p deep/er; echo x > deep/er/y",
        f"echo two >> file; {machines.wait_for('go')}",
    )
    first = machines.worker(0)
    run = machines.submit("job")
    machines.await_signal("go")
    away = tmp_path_factory.mktemp("away")

    def diff(*words: str) -> subprocess.CompletedProcess[str]:
        return machines.llc("diff", run, *words, "--db", machines.url, folder=away)

    result = diff("--name-only")
    assert (result.returncode, result.stdout) == (0, "added\ndeep/er/y\n"), result.stderr
    machines.worker(1)
    first.kill()
    postgres.until(lambda: machines.row(run)["epoch"] >= 4)
    (machines.signals / "go").touch()
    assert machines.await_status(run)["outcome"] == "success"
    complete = diff()
    assert complete.returncode == 0, complete.stderr
    assert "-dirty\n" not in complete.stdout
    assert "+++ b/file\n@@ -1 +1,2 @@\n dirty\n+two\n" in complete.stdout
    assert "+one\n" in complete.stdout
    assert "added" not in diff("two").stdout
    assert [file["path"] for file in json.loads(diff("one", "--json").stdout)["files"]] == [
        "added",
        "deep/er/y",
    ]
    unknown = diff("three")
    assert (unknown.returncode, "error[no-such-point]" in unknown.stderr) == (2, True), unknown.stderr
    patch = away / "patch"
    patch.write_text(complete.stdout)
    git(machines.folder, "apply", "--check", str(patch))
    assert os.listdir(away) == ["patch"]
    machines.database.execute("update documents set data = 'no pack' where starts_with(name, 'kept-trees/')")
    damaged = diff()
    assert (damaged.returncode, "error[no-tree]" in damaged.stderr) == (2, True), damaged.stderr
    machines.database.execute("delete from documents where starts_with(name, 'kept-trees/')")
    missing = diff()
    assert (missing.returncode, "error[no-tree]" in missing.stderr) == (2, True), missing.stderr


def test_another_machine_continues_with_the_files(machines: Machines) -> None:
    """After kill -9 in the second action, only this one is repeated elsewhere, on the files of the first
    one.
    """
    machines.write(
        "echo one >> log; git add log; git commit -q -m mine log; echo two >> log",
        f"echo half >> log; [ -e {machines.signals}/go ] || {{ {machines.wait_for('go')}; }}",
    )
    first = machines.worker(0)
    run = machines.submit("job")
    machines.await_signal("go")
    machines.worker(1)
    first.kill()
    postgres.until(lambda: machines.row(run)["epoch"] >= 4)
    (machines.signals / "go").touch()
    assert machines.await_status(run)["outcome"] == "success"
    assert machines.branch(run, "log") == "one\ntwo\nhalf"
    assert git(machines.origin, "log", "--format=%s", f"llc/{run}").splitlines()[1:] == ["mine", "first"]
    assert [event["event"] for event in machines.events(run)].count("action_complete") == 2


def test_the_process_of_a_run_is_killed(machines: Machines) -> None:
    """The worker is alive: the run returns to the queue at once, and continues."""
    machines.write("echo one >> log", f"echo $PPID > {machines.signals}/pid; {machines.wait_for('go')}")
    worker = machines.worker(0)
    run = machines.submit("job")
    machines.await_signal("go")
    os.kill(int((machines.signals / "pid").read_text()), signal.SIGKILL)
    postgres.until(lambda: machines.row(run)["epoch"] >= 4)
    (machines.signals / "go").touch()
    assert machines.await_status(run)["outcome"] == "success"
    assert machines.branch(run, "log") == "one"
    assert worker.poll() is None
    assert f"the process of {run} was killed; the run continues" in machines.output()


def test_drained_worker_passes_the_files_on(machines: Machines) -> None:
    """After SIGTERM the action ends here, and the next one starts elsewhere with its files."""
    machines.write(f"{machines.wait_for('go')}; echo one >> log", "echo two >> log")
    first = machines.worker(0)
    run = machines.submit("job")
    machines.await_signal("go")
    first.terminate()
    (machines.signals / "go").touch()
    assert first.wait(LIMIT_S) == 0
    assert machines.row(run)["status"] in ("queued", "ended")
    machines.worker(1)
    assert machines.await_status(run)["outcome"] == "success"
    assert machines.branch(run, "log") == "one\ntwo"


def test_a_run_is_stopped_and_resumed(machines: Machines) -> None:
    """`llc stop` reaches the process of the run; `resume --on` continues with its files."""
    machines.write("echo one >> log", f"[ -e {machines.signals}/go ] || {{ {machines.wait_for('go')}; }}")
    machines.worker(0)
    run = machines.submit("job")
    machines.await_signal("go")
    stopped = machines.llc("stop", run, "--db", machines.url, "--wait", "60", "--json")
    assert json.loads(stopped.stdout) == [{"run": run, "how": "stopped"}]
    (machines.signals / "go").touch()
    assert machines.llc("resume", run, "--on", machines.url).returncode == 0
    assert machines.await_status(run)["outcome"] == "success"
    assert machines.branch(run, "log") == "one"


def test_run_on_a_ref(machines: Machines) -> None:
    """A tag of the repository, independent of the user's files; without changes there is no branch."""
    git(machines.folder, "tag", "v1")
    git(machines.folder, "push", "-q", "origin", "v1")
    machines.configure(f"workspace: {{repo: ../../{machines.origin.name}, ref: v1}}\n")
    (machines.folder / "file").write_text("changed\n")
    machines.write("true", f"cp file {machines.signals}/seen")
    run = machines.submit("job")
    machines.worker(0)
    assert machines.await_status(run)["outcome"] == "success"
    assert (machines.signals / "seen").read_text() == "committed\n"
    assert git(machines.origin, "branch", "--list", "llc/*") == ""


def test_many_changes_need_few_packs(machines: Machines) -> None:
    """A complete pack from time to time replaces the earlier ones, which are removed."""
    (machines.folder / ".loops/job.sexp").write_text(
        '(for-each (lambda (n) (system:execute_shell_command "echo x >> log" (timeout 60))) (range 70))'
    )
    run = machines.submit("job")
    machines.worker(0)
    assert machines.await_status(run)["outcome"] == "success", machines.output()
    assert machines.branch(run, "log").split() == 70 * ["x"]
    packs = machines.database.execute(
        "select name from documents where run = %s and starts_with(name, 'workspace/') order by name", [run]
    ).fetchall()
    assert packs[0] == ("workspace/000000.pack",)
    assert 1 < len(packs) < 40


@pytest.mark.parametrize(
    ("invalidate", "message"),
    [
        (lambda machines: machines.configure("workspace: {ref: absent}\n"), "neither a branch nor a tag"),
        (lambda machines: machines.configure("workspace: {repo: /nowhere/x.git}\n"), "cannot be submitted"),
        (lambda machines: git(machines.folder, "remote", "remove", "origin"), "cannot be submitted"),
        (
            lambda machines: machines.configure("workspace: {repo: '--exec=x'}\n"),
            "cannot be submitted",
        ),
        (lambda machines: machines.configure("workspace: {repo: 'ext::sh -c id'}\n"), "cannot be submitted"),
    ],
    ids=["ref", "repository", "remote", "option", "command"],
)
def test_invalid_workspace_is_not_submitted(
    machines: Machines, invalidate: Callable[[Machines], object], message: str
) -> None:
    """The error has a reason, and no run is created."""
    machines.write("true", "true")
    invalidate(machines)
    result = machines.llc("run", "job", "--on", machines.url)
    assert result.returncode == 1
    assert "error[bad-workspace]" in result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert machines.database.execute("select count(*) from runs").fetchone() == (0,)


def test_a_token_of_the_repository_is_in_no_message() -> None:
    with pytest.raises(NoTree) as error:
        workspace._commit_of("gone", {}, "https://me:t0ken@git.example/app.git")
    assert str(error.value) == "https://me:***@git.example/app.git has neither a branch nor a tag `gone`"


HOSTILE_ROWS = (
    ("workspace.json", b"\xff"),
    ("workspace.json", b"[1]"),
    ("workspace.json", b'{"repo": 7, "needs": [], "prefix": ""}'),
    ("workspace.json", b'{"repo": "/x", "needs": ["--all"], "prefix": ""}'),
    ("workspace.json", b'{"repo": "/x", "needs": [], "prefix": "../../.."}'),
    ("workspace/000000.pack", b"nothing"),
    ("workspace/000000.pack", b'{"seq": 0}\nPACK'),
    ("workspace/000000.pack", b'{"seq":0,"head":"x","commit":"-f","tree":"","is_full":true}\n'),
    ("workspace/none", b"{}"),
)


def test_hostile_rows_of_a_workspace(machines: Machines) -> None:
    """Each run is stopped with a reason, nothing is performed, and the worker continues with others."""
    machines.write(f"echo $LLC_RUN_ID >> {machines.signals}/performed", "true")
    jobs = machines.folder / "jobs.jsonl"
    jobs.write_text((len(HOSTILE_ROWS) + 1) * (json.dumps({"loop": "job", "scope": []}) + "\n"))
    result = machines.llc("batch", str(jobs), "--on", machines.url)
    assert result.returncode == 0, result.stderr
    sound, *runs = [run for (run,) in machines.database.execute("select id from runs").fetchall()]
    for run, (name, data) in zip(runs, HOSTILE_ROWS, strict=True):
        machines.database.execute(
            "insert into documents values (%s, %s, %s) on conflict (run, name) do update set data = %s",
            [run, name, data, data],
        )
    worker = machines.worker(0)
    for run, row in zip(runs, HOSTILE_ROWS, strict=True):
        postgres.until(lambda run=run: machines.row(run)["outcome"])
        stopped = machines.row(run)
        assert (stopped["status"], "workspace" in stopped["outcome"]) == ("stopped", True), row
    assert machines.await_status(sound)["outcome"] == "success"
    assert (machines.signals / "performed").read_text() == f"{sound}\n"
    assert worker.poll() is None
    assert "Traceback" not in machines.output(), machines.output()


def test_repository_that_rejects_the_result(machines: Machines) -> None:
    """The run has ended; its worker names the reason, and `llc resume` pushes the files again."""
    machines.write("true", "echo new > new")
    hook = machines.origin / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    hook.chmod(0o755)
    run = machines.submit("job")
    machines.worker(0)
    assert machines.await_status(run)["outcome"] == "success"
    postgres.until(lambda: "its files were not returned" in machines.output())
    hook.unlink()
    resumed = machines.llc("resume", run, "--on", machines.url)
    assert (resumed.returncode, resumed.stdout) == (0, f"{run}\n"), resumed.stderr
    assert machines.await_status(run)["outcome"] == "success"
    assert machines.branch(run, "new") == "new"
    postgres.until(lambda: f"its files are in the branch llc/{run}" in machines.output())
    again = machines.llc("resume", run, "--on", machines.url)
    assert (again.returncode, "is stopped in" in again.stderr) == (1, True), again.stderr


def test_a_fork_has_the_files_of_its_point(machines: Machines) -> None:
    """The files after the last shared effect; its result is a separate branch."""
    machines.write("echo one > made", "echo two >> made")
    machines.worker(0)
    run = machines.submit("job")
    machines.await_status(run)
    assert machines.branch(run, "made") == "one\ntwo"
    result = machines.llc("fork", run, "--at", "2", "--on", machines.url, "--quiet")
    assert result.returncode == 0, result.stderr
    forked = result.stdout.strip()
    assert machines.await_status(forked)["outcome"] == "success"
    assert machines.branch(forked, "made") == "one\ntwo"
