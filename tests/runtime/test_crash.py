"""The crash matrix: whatever cuts a run off, resuming it ends it as if nothing had.

After each accident no effect that had finished is performed again, those of which it is not known
follow their policy, and outcome, counters and notes are those of a run that was left alone. A larger matrix:
`make crash`.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from llc.ir.text import parse_program
from llc.runtime.store import journal
from llc.vm.emit import emit

IS_LARGE = bool(os.environ.get("LLC_CRASH"))
KILLS = ("before", "torn", "after")

RETRY = """
name: job
initial: count
max_iterations: 8
backoff: 0.01
states:
  count:
    action: 'echo "$LLC_EFFECT_ID count" >> log; n=${captured.n.output:default=0}; echo $((n + 1))'
    capture: n
    evaluate: {type: output_numeric, operator: ge, target: 3}
    on_success: report
    on_failure: again
  again:
    action: 'echo "$LLC_EFFECT_ID again" >> log; exit 1'
    on_success: report
    on_failure: count
  report:
    action: 'echo "$LLC_EFFECT_ID report ${captured.n.output}" >> log'
    next: done
  done: {terminal: true}
"""
MAINTAIN = """
name: job
initial: work
maintain: true
maintain_delay: 0.01
max_steps: 7
states:
  work:
    action: 'echo "$LLC_EFFECT_ID work" >> log; n=${captured.n.output:default=0}; echo $((n + 1))'
    capture: n
    next: done
  done: {terminal: true, on_maintain: work}
"""
# An action in IR text: it says that it is performed, and prints `{0}`.
ACT = (
    'perform shell map("command", concat("echo $LLC_EFFECT_ID act >> log; printf ", {0})) -> answer then {1}'
)
NESTED = """
program job entry main
function main() locals(a, b)
  state first
    call closure twice()("x") -> a then second
  state second
    call closure twice()("y") -> b then end
  state end
    return list(a, b)
function twice(word) locals(one, two)
  state first
    call closure act()(word) -> one then second
  state second
    call closure act()(one) -> two then end
  state end
    return list(one, two)
function act(word) locals(answer)
  state act
    ACT
  state end
    return get(answer, "output")
""".replace("ACT", ACT.format('word, "z"', "end"))
PARALLEL = """
program job entry main
function main() locals(found)
  state start
    parallel closure work() over ["p", "q", "r"] -> found then end
  state end
    return found
function work(word) locals(answer, slept)
  state first
    ACT
  state wait
    perform sleep map("seconds", 0.005) -> slept then second
  state second
    THEN
  state end
    return get(answer, "output")
""".replace("ACT", ACT.format("word", "wait")).replace(
    "THEN", ACT.format('get(answer, "output"), "2"', "end")
)
JUDGED = """
name: job
initial: count
max_iterations: 5
states:
  count:
    action: 'echo "$LLC_EFFECT_ID count" >> log; n=${captured.n.output:default=0}; echo $((n + 1))'
    capture: n
    evaluate: {type: llm_structured, prompt: "Is it 2?"}
    on_success: done
    on_failure: count
    on_error: count
  done: {terminal: true}
"""
PROGRAMS = {"retry": RETRY, "maintain": MAINTAIN, "nested": NESTED, "parallel": PARALLEL}
SEQUENTIAL = ("retry", "maintain", "nested")


class Runner:
    """Starts llc in a process that has an accident; see `crash_runner`."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("crash_runner.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, cwd: Path, *words: str, **job: Any) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"cwd": str(cwd), "words": words, **job}) + "\n")
        self.process.stdin.flush()
        code: int = json.loads(self.process.stdout.readline())["code"]
        return code


@pytest.fixture(scope="module")
def llc() -> Iterator[Runner]:
    runner = Runner()
    yield runner
    runner.process.kill()
    runner.process.communicate()


class Project:
    """A folder with one program in it, and what its runs left there."""

    def __init__(self, folder: Path, name: str, text: str | None = None) -> None:
        self.folder = folder
        (folder / ".loops").mkdir(parents=True)
        text = text or PROGRAMS[name]
        if text.lstrip().startswith("program"):
            self.target = "job.llb"
            (folder / "job.llb").write_bytes(emit(parse_program(text, "job.ir")).to_bytes())
        else:
            self.target = "job"
            (folder / ".loops" / "job.yaml").write_text(text)

    def log(self) -> Counter[str]:
        """How often each effect was performed, by its number."""
        path = self.folder / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(line.split()[0].rpartition("/")[2] for line in lines)

    def events(self) -> list[dict[str, Any]]:
        paths = list(self.folder.glob(".loops/.*/job-*/job.events.jsonl"))
        assert len(paths) <= 1
        return [r.event for path in paths for r in journal.read(str(path)) if r.event is not None]

    def finished(self) -> set[str]:
        return {str(e["seq"]) for e in self.events() if e["event"] in ("action_complete", "effect_complete")}

    def is_run(self) -> bool:
        return any(self.folder.glob(".loops/.*/job-*/job.events.jsonl")) and bool(self.events())

    def has_ended(self) -> bool:
        return any(self.folder.glob(".loops/.history/job-*"))

    def story(self, name: str) -> Any:
        """What has to be the same however often the run was cut off."""
        end = [event for event in self.events() if event["event"] == "run_end"][-1]
        names = ("status", "terminated_by", "final_state", "iterations", "steps", "value", "error")
        outcome = {name: end[name] for name in names}
        notes = [
            {name: value for name, value in event.items() if name != "ts"}
            for event in self.events()
            if event["event"] in ("state_enter", "evaluate", "route", "cycle", "loop_complete")
        ]
        return outcome, notes if name in SEQUENTIAL or name == "judged" else None


def check_resumed(llc: Runner, project: Project, name: str, expected: Any, about: str, **env: Any) -> None:
    """Resume until it ends; nothing that had finished is done again, and all is as it should be."""
    done, before = project.finished(), project.log()
    if not project.is_run():
        assert not before, about
        return
    if not project.has_ended():
        code = llc(project.folder, "resume", "job", "-q", **env)
        shown = (project.folder / "shown").read_text()
        assert code == (3 if name == "maintain" else 0), (about, shown)
    assert project.has_ended(), about
    after = project.log()
    for seq in done:
        assert after[seq] == before[seq], (about, seq)
    assert all(count <= 2 for count in after.values()), about
    assert project.story(name) == expected, about


@pytest.fixture(scope="module")
def expected(llc: Runner, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each program comes to when it is left alone."""
    stories = {}
    for name in PROGRAMS:
        project = Project(tmp_path_factory.mktemp("alone") / name, name)
        llc(project.folder, "run", project.target, "-q")
        stories[name] = project.story(name)
        assert set(project.log().values()) == {1}
    return stories


def accidents(
    llc: Runner, folder: Path, name: str, fault: str, step: int = 1
) -> Iterator[tuple[Project, str]]:
    """A project for each write at which the accident happens, until one ends without it."""
    at = 1
    while True:
        project = Project(folder / f"{fault}-{at}", name)
        code = llc(project.folder, "run", project.target, "-q", fault=fault, at=at)
        if code in (0, 3):
            assert at > 8
            return
        yield project, f"{name}: {fault} at write {at}, exit {code}"
        at += step


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("fault", KILLS)
def test_killed_at_any_write(
    llc: Runner, tmp_path: Path, expected: dict[str, Any], name: str, fault: str
) -> None:
    """kill -9 before, in the middle of and after each write to the files of a run."""
    step = 1 if IS_LARGE or fault == "after" else 2
    for project, about in accidents(llc, tmp_path, name, fault, step):
        check_resumed(llc, project, name, expected[name], about)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("fault", ["enospc", "eio", "sync", "sigint", "sigterm"])
def test_refused_or_signalled_at_any_write(
    llc: Runner, tmp_path: Path, expected: dict[str, Any], name: str, fault: str
) -> None:
    """A full or broken disk, Ctrl-C and SIGTERM leave a run that can be resumed."""
    step = 1 if IS_LARGE else 4
    for project, about in accidents(llc, tmp_path, name, fault, step):
        check_resumed(llc, project, name, expected[name], about)


def test_killed_again_while_it_is_resumed(llc: Runner, tmp_path: Path, expected: dict[str, Any]) -> None:
    """Cut off at some write, and again at some write of the resumed run, and once more."""
    chance = random.Random(7)
    for number in range(400 if IS_LARGE else 16):
        name = chance.choice(list(PROGRAMS))
        project = Project(tmp_path / str(number), name)
        about = f"{number}: {name}"
        words = ["run", project.target]
        performed: Counter[str] = Counter()
        finished: set[str] = set()
        for _ in range(3):
            fault, at = chance.choice([*KILLS, "eio", "sigint"]), chance.randint(1, 12)
            about += f", {words[0]} {fault} at {at}"
            llc(project.folder, *words, "-q", fault=fault, at=at)
            log = project.log()
            for seq in finished:
                assert log[seq] == performed[seq], (about, seq)
            finished, performed = project.finished(), log
            if not project.is_run() or project.has_ended():
                break
            words = ["resume", "job"]
        if project.is_run() and not project.has_ended():
            code = llc(project.folder, "resume", "job", "-q")
            shown = (project.folder / "shown").read_text()
            assert code == (3 if name == "maintain" else 0), (about, shown)
        for seq in finished:
            assert project.log()[seq] == performed[seq], (about, seq)
        if project.is_run():
            assert project.story(name) == expected[name], about


def test_killed_at_any_time(llc: Runner, tmp_path: Path, expected: dict[str, Any]) -> None:
    """kill -9 from outside, whatever the run is doing."""
    chance = random.Random(11)
    for number in range(200 if IS_LARGE else 20):
        name = chance.choice(list(PROGRAMS))
        project = Project(tmp_path / str(number), name)
        llc(project.folder, "run", project.target, "-q", kill_after=chance.uniform(0.005, 0.12))
        check_resumed(llc, project, name, expected[name], f"{number}: {name}")


CAREFUL = RETRY.replace("initial: count\n", "initial: count\non_error: report\n").replace(
    "    next: done\n", "    on_unknown: fail\n    next: done\n    on_error: done\n"
)
CAREFUL = CAREFUL.replace("    capture: n\n", "    capture: n\n    on_unknown: fail\n").replace(
    "exit 1'\n", "exit 1'\n    on_unknown: fail\n"
)


@pytest.mark.parametrize("fault", KILLS)
def test_what_must_not_be_done_twice_is_not(llc: Runner, tmp_path: Path, fault: str) -> None:
    """With `on_unknown: fail` no action is ever performed twice; its error is routed."""
    PROGRAMS["careful"] = CAREFUL
    try:
        for project, about in accidents(llc, tmp_path, "careful", fault, 1 if IS_LARGE else 3):
            if project.is_run() and not project.has_ended():
                assert llc(project.folder, "resume", "job", "-q") in (0, 1), about
            assert set(project.log().values()) <= {1}, about
    finally:
        del PROGRAMS["careful"]


def test_killed_around_a_model_call(llc: Runner, tmp_path: Path, answers: ModuleType) -> None:
    """A verdict that was paid for is not asked for again; one that was cut off is."""

    def judge(handler: Any, request: dict[str, Any]) -> None:
        is_two = "\n2" in json.dumps(request["messages"]).replace("\\n", "\n")
        answers.verdict("success" if is_two else "failure")(handler, request)

    with answers.MessagesServer() as server:
        server.then(judge)
        env = {
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "test-key",
            "NO_PROXY": "127.0.0.1",
        }
        alone = Project(tmp_path / "alone", "judged", JUDGED)
        assert llc(alone.folder, "run", "job", "-q", env=env) == 0
        paid = len(server.requests)
        places = range(1, 20) if IS_LARGE else (5, 6, 7)
        for at in places:
            server.requests.clear()
            project = Project(tmp_path / str(at), "judged", JUDGED)
            code = llc(project.folder, "run", "job", "-q", env=env, fault="after", at=at)
            if code == 0:
                break
            check_resumed(llc, project, "judged", alone.story("judged"), f"at {at}", env=env)
            assert len(server.requests) <= paid + 1, at
