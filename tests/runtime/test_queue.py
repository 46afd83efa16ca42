"""`--queue`: first come, first served, without overlap, deadlock or polling."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from keepers import kill_with_keeper
from waiting import wait_for

from llc.runtime.runs import locks
from llc.runtime.runs.scope_conflicts import overlap

GATE = (
    "name: NAME\nscope: [SCOPE]\ninitial: a\nstates:\n"
    "  a: {action: 'echo NAME >> log; touch here.NAME; until [ -e go.NAME ]; do sleep 0.02; done', next: z}\n"
    "  z: {terminal: true}\n"
)


@pytest.fixture
def project(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, scope in (("one", "src"), ("two", "src/a"), ("three", "."), ("unrelated", "docs")):
        (project_dir / ".loops" / f"{name}.yaml").write_text(
            GATE.replace("NAME", name).replace("SCOPE", f'"{scope}"')
        )
    monkeypatch.delenv("LLC_RUN_ID", raising=False)
    yield project_dir
    for process in _processes:
        process.kill()
        process.communicate()
    _processes.clear()


_processes: list[subprocess.Popen[str]] = []


def start_llc(*words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "llc", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    _processes.append(process)
    return process


def lock_files(project: Path) -> dict[str, dict[str, Any]]:
    """The content of the runs' lock files, by program."""
    content = {}
    for path in project.glob(".loops/.running/*/lock"):
        try:
            about = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        content[about["program"]] = about
    return content


def is_queued(project: Path, name: str) -> bool:
    return bool(lock_files(project).get(name, {}).get("waits_for"))


def started(project: Path) -> list[str]:
    path = project / "log"
    return path.read_text().split() if path.exists() else []


def test_runs_start_in_queue_order(project: Path) -> None:
    """Each run waits for earlier runs with overlapping paths; other runs do not wait."""
    first = start_llc("run", "one", "-q")
    wait_for((project / "here.one").exists)
    third = start_llc("run", "three", "-q", "--queue")
    wait_for(lambda: is_queued(project, "three"))
    second = start_llc("run", "two", "-q", "--queue")
    wait_for(lambda: is_queued(project, "two"))
    facts = lock_files(project)
    assert facts["three"]["waits_for"] == [facts["one"]["run"]]
    assert set(facts["two"]["waits_for"]) == {facts["one"]["run"], facts["three"]["run"]}
    assert facts["three"]["ticket"] < facts["two"]["ticket"]
    for name, process in (("one", first), ("three", third), ("two", second)):
        wait_for((project / f"here.{name}").exists)
        (project / f"go.{name}").touch()
        assert process.wait(60) == 0
    assert started(project) == ["one", "three", "two"]


def test_a_queued_run_is_listed_with_its_blocker(project: Path) -> None:
    """`list --running` and `status` show it as queued; it performs nothing."""
    first = start_llc("run", "one", "-q")
    wait_for((project / "here.one").exists)
    second = start_llc("run", "two", "-q", "--queue")
    wait_for(lambda: is_queued(project, "two"))
    from llc.runtime.inspection import status

    rows = {row["program"]: row for row in status.unfinished()}
    assert rows["two"]["status"] == "queued"
    assert rows["two"]["waits_for"] == [rows["one"]["run"]]
    assert (rows["one"]["status"], rows["one"]["waits_for"]) == ("running", [])
    for name in ("one", "two"):
        (project / f"go.{name}").touch()
    assert (first.wait(60), second.wait(60)) == (0, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_leaving_the_queue_unblocks_later_runs(project: Path, number: int) -> None:
    """Ctrl-C leaves no files; after kill -9 later runs still start."""
    first = start_llc("run", "one", "-q")
    wait_for((project / "here.one").exists)
    leaving = start_llc("run", "three", "-q", "--queue")
    wait_for(lambda: is_queued(project, "three"))
    last = start_llc("run", "two", "-q", "--queue")
    wait_for(lambda: is_queued(project, "two"))
    leaving.send_signal(number)
    leaving.communicate(timeout=60)
    assert leaving.returncode == (130 if number != signal.SIGKILL else -signal.SIGKILL)
    if number != signal.SIGKILL:
        assert "three" not in lock_files(project)
    for name in ("one", "two"):
        (project / f"go.{name}").touch()
    assert (first.wait(60), last.wait(60)) == (0, 0)
    assert started(project) == ["one", "two"]


def test_a_start_without_queue_does_not_overtake(project: Path) -> None:
    """It is refused and names the run, pid and time, even if the other run is only queued."""
    first = start_llc("run", "one", "-q")
    wait_for((project / "here.one").exists)
    second = start_llc("run", "three", "-q", "--queue")
    wait_for(lambda: is_queued(project, "three"))
    unrelated = start_llc("run", "unrelated", "--json", "-q")
    error = json.loads(unrelated.communicate(timeout=60)[0])["error"]
    facts = lock_files(project)
    assert error["kind"] == "scope-conflict"
    assert facts["three"]["run"] in error["message"]
    assert f"pid {second.pid}" in error["message"]
    assert "in the queue" in error["message"]
    direct = start_llc("run", "two", "--json", "-q")
    error = json.loads(direct.communicate(timeout=60)[0])["error"]
    moment = datetime.fromisoformat(facts["one"]["since"]).astimezone()
    since = f"{moment:%Y-%m-%d %H:%M:%S}"
    assert f"{facts['one']['run']} (pid {first.pid}, since {since})" in error["message"]
    assert "--queue" in error["help"]
    for name in ("one", "three"):
        (project / f"go.{name}").touch()
    assert (first.wait(60), second.wait(60)) == (0, 0)


def test_an_interrupted_run_can_queue_for_its_resume(project: Path) -> None:
    """`resume --queue` waits for its turn; leaving the queue does not change the run."""
    killed = start_llc("run", "two", "-q")
    wait_for((project / "here.two").exists)
    kill_with_keeper(killed)
    first = start_llc("run", "one", "-q")
    wait_for((project / "here.one").exists)
    for is_last in (False, True):
        waiting = start_llc("resume", "two", "-q", "--queue")
        wait_for(lambda: is_queued(project, "two") and locks.is_live(run_of(project, "two")))
        resumed = start_llc("resume", "two", "--json", "-q")
        error = json.loads(resumed.communicate(timeout=60)[0])["error"]
        assert (error["kind"], "is in the queue" in error["message"]) == ("run-is-live", True)
        if not is_last:
            waiting.send_signal(signal.SIGINT)
            assert waiting.wait(60) == 130
    for name in ("one", "two"):
        (project / f"go.{name}").touch()
    assert (first.wait(60), waiting.wait(60)) == (0, 0)
    assert started(project) == ["two", "one", "two"]


def run_of(project: Path, name: str) -> Any:
    from llc.runtime.runs.lookup import find_unfinished

    return find_unfinished(name, str(project))


def test_a_nested_run_does_not_wait_in_the_queue(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop started by an action of the holder belongs to the holder, so it precedes the queue."""
    first = start_llc("run", "one", "-q")
    wait_for((project / "here.one").exists)
    second = start_llc("run", "three", "-q", "--queue")
    wait_for(lambda: is_queued(project, "three"))
    monkeypatch.setenv("LLC_RUN_ID", lock_files(project)["one"]["run"])
    inner = start_llc("run", "two", "-q", "--queue")
    wait_for((project / "here.two").exists)
    for name in ("two", "one", "three"):
        (project / f"go.{name}").touch()
    assert (inner.wait(60), first.wait(60), second.wait(60)) == (0, 0, 0)


def test_a_background_run_can_queue(project: Path) -> None:
    """Its id is printed at once; it starts when its turn comes."""
    first = start_llc("run", "one", "-q")
    wait_for((project / "here.one").exists)
    done = start_llc("run", "two", "--background", "--queue", "-q")
    output, _ = done.communicate(timeout=60)
    assert output.strip() == lock_files(project)["two"]["run"]
    assert is_queued(project, "two")
    for name in ("one", "two"):
        (project / f"go.{name}").touch()
    assert first.wait(60) == 0
    wait_for(lambda: list(project.glob(".loops/.history/two-*")))


# Each process locks its paths, logs it, holds the lock for a moment and logs its release.
MANY = """
    import os, sys, time
    from llc.runtime.runs import locks
    from llc.runtime.host.effect_context import Interrupt

    scopes = [["a"], ["a/b"], ["a/b/c"], ["c"], ["c/d", "e"], ["e"], ["."], ["ab"], ["f"], ["g"]]
    log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    looks = 0
    really = locks.conflicting_runs

    def counted(*args):
        global looks
        looks += 1
        return really(*args)

    locks.conflicting_runs = counted
    read, write = os.pipe()
    for number in range(50):
        if os.fork() == 0:
            os.close(write)
            os.read(read, 1)
            scope = scopes[number % len(scopes)]
            seen = []
            queue = locks.Queue(Interrupt(), lambda run, others: seen.append(run.about()["ticket"]))
            run, lock = locks.start("", "many", scope, {"program": "many"}, queue)
            ticket = seen[0] if seen else 0
            os.write(log, f"+ {number} {ticket} {looks} {' '.join(run.about()['scope'])}\\n".encode())
            time.sleep(0.005)
            os.write(log, f"- {number}\\n".encode())
            run.discard()
            lock.close()
            os._exit(0)
    os.close(read)
    os.close(write)
    codes = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(50)]
    print(codes.count(0))
"""


def test_fifty_queued_runs_never_overlap(project: Path) -> None:
    """All run in queue order, without polling."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MANY)], capture_output=True, text=True, timeout=100
    )
    assert done.stdout.strip() == "50", done.stderr
    now: dict[str, list[str]] = {}
    order: list[tuple[int, list[str]]] = []
    for line in (project / "log").read_text().splitlines():
        sign, number, *facts = line.split()
        if sign == "-":
            del now[number]
            continue
        ticket, looks, *scope = facts
        for other in now.values():
            assert not any(overlap(a, b) for a in scope for b in other), line
        now[number] = scope
        assert int(looks) <= 30
        for earlier, paths in order:
            if int(ticket) and earlier > int(ticket):
                assert not any(overlap(a, b) for a in scope for b in paths), line
        order.append((int(ticket), scope))
    assert len(order) == 50
    assert now == {}
    assert os.listdir(".loops/.running") in (
        [".lock", ".gitignore"],
        [".gitignore", ".lock"],
    )


def test_a_surviving_nested_run_does_not_block_resume(project: Path) -> None:
    """Resume ends the nested run left by the killed run's action, then starts the action again."""
    (project / ".loops" / "outer.yaml").write_text(
        "name: outer\nscope: [src]\ninitial: a\nstates:\n"
        f"  a: {{action: '{sys.executable} -m llc run two -q', on_success: z}}\n  z: {{terminal: true}}\n"
    )
    outer = start_llc("run", "outer", "-q")
    wait_for(lambda: (project / "here.two").exists())
    kill_with_keeper(outer)
    (project / "here.two").unlink()
    refused = start_llc("run", "one", "-q")
    assert refused.wait(60) == 1, "the paths of the surviving run stay locked"
    resumed = start_llc("resume", "outer", "-q")
    wait_for(lambda: (project / "here.two").exists() or resumed.poll() is not None)
    (project / "go.two").touch()
    assert resumed.wait(60) == 0, resumed.communicate()[1]
    assert (project / "log").read_text().split() == ["two", "two"]
