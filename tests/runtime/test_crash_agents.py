"""kill -9 of llc at every event of an agent's effect, with real agents and a model server.

After `llc resume` the agent has done each step once: no finished step is repeated or paid for again, and
the running tool was ended and named to the agent. By default a few points for each agent; with `LLC_CRASH=1`
(`make crash`) before, during and after every write of the run, of which at least 95 % must pass.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import postgres
import pytest
from crash_projects import KILLS, Runner

from .agent_homes import environment_of
from .model_server import ModelServer, Say, Shell, Step

IS_LARGE = bool(os.environ.get("LLC_CRASH"))
AGENTS = ("claude", "codex")
STEPS = 3
# An agent that loses its results would send requests forever.
MAX_REQUESTS = 20
LOOP = """\
name: job
initial: fix
agent: {agent}
states:
  fix: {{action: Do the steps, action_type: prompt, next: done, on_error: bad}}
  done: {{terminal: true}}
  bad: {{terminal: true, status: failure}}
"""
# Executed by the tool; with `look`, a finished step is not repeated.
STEP = """\
[ "$2" = look ] && grep -qx "end $1" marks && echo finished-$1 && exit
echo "begin $1" >> marks
sleep 0.2
echo "end $1" >> marks
echo finished-$1
"""
INTERRUPTED = "The program that ran you was interrupted"
NOTICE = "This was running, and has been ended"


class Model(ModelServer):
    """A model that reads its conversation and requests the first step without a result.

    It follows the notice: it first checks whether the step that the notice names, or else the next step, is
    done. asked: the requested steps, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.has_looked = False

    def take(self, request: dict[str, Any]) -> Step:
        text = json.dumps(request)
        self.requests.append(request)
        step = next((step for step in range(STEPS) if f"finished-{step}" not in text), None)
        if step is None or len(self.requests) > MAX_REQUESTS:
            return Say("All steps are done.")
        is_in_doubt = is_named(step, text) or (INTERRUPTED in text and not self.has_looked)
        self.has_looked = self.has_looked or INTERRUPTED in text
        self.asked.append(step)
        return Shell(f"sh step.sh {step}{' look' if is_in_doubt else ''}")


def is_named(step: int, text: str) -> bool:
    """Return whether a notice in this conversation names the step as interrupted."""
    return re.search(rf"{NOTICE}.*step\.sh {step}", text) is not None


class Job:
    """A project with the loop, an agent with its own home folder, and its model."""

    def __init__(self, folder: Path, agent: str, program: Path, model: Model) -> None:
        self.folder = folder
        self.model = model
        (folder / ".loops").mkdir(parents=True)
        (folder / ".loops" / "job.yaml").write_text(LOOP.format(agent=agent))
        (folder / "step.sh").write_text(STEP)
        self.env = environment_of(folder.parent / f"{folder.name}-home", program, model.url)

    def journal(self) -> list[dict[str, Any]]:
        paths = list(self.folder.glob(".loops/.*/job-*/*.events.jsonl"))
        text = paths[0].read_text() if paths else ""
        # The last line may be torn.
        return [json.loads(line) for line in text.split("\n")[:-1]]

    @property
    def is_in_effect(self) -> bool:
        """Whether the run is unfinished and the agent's effect has started."""
        is_left = list(self.folder.glob(".loops/.running/job-*/*.events.jsonl"))
        return bool(is_left) and any(event["event"] == "action_start" for event in self.journal())

    def running(self) -> set[int]:
        """Steps that the journal records as started but not as ended."""
        running_steps: dict[str, int] = {}
        for event in self.journal():
            step = re.search(r"step\.sh (\d)", str(event.get("target", "")))
            if event.get("what") == "tool" and step is not None:
                running_steps[str(event["id"])] = int(step[1])
            elif event.get("what") == "tool-end":
                running_steps.pop(str(event.get("id")), None)
        return set(running_steps.values())

    def problems(self, asked_before: Counter[int], finished: set[int], running: set[int]) -> list[str]:
        """Problems after the run was resumed and has ended.

        asked_before, finished, running: the steps requested, done and running when llc was killed.
        """
        problems = []
        path = self.folder / "marks"
        marks = Counter(path.read_text().splitlines() if path.exists() else ())
        for step in range(STEPS):
            if marks[f"end {step}"] != 1:
                problems.append(f"step {step} was done {marks[f'end {step}']} times")
        asked = Counter(self.model.asked)
        problems += [
            f"step {step} was paid for again" for step in finished if asked[step] > asked_before[step]
        ]
        text = json.dumps(self.model.requests)
        problems += [f"step {step} was not named" for step in running - finished if not is_named(step, text)]
        if self.journal()[-1].get("status") != "success":
            problems.append("the run did not succeed")
        return problems


@pytest.fixture(scope="module", params=["files", "database"])
def llc(request: pytest.FixtureRequest) -> Iterator[Runner]:
    """Both run stores. The keeper of the agent is killed too."""
    job: dict[str, Any] = {"with_keeper": True}
    if request.param == "database":
        job["database"] = postgres.cluster_database(request.getfixturevalue("postgres_server"))
    with Runner(**job) as runner:
        yield runner


def kill(llc: Runner, folder: Path, agent: str, program: Path, fault: str, at: int) -> list[str] | None:
    """Kill llc at one write and resume.

    Return the problems, or None if the agent's effect had not started.
    """
    with Model() as model:
        job = Job(folder, agent, program, model)
        llc(folder, "run", "job", "-q", "--no-preflight", fault=fault, at=at, env=job.env)
        if not job.is_in_effect:
            return None
        text = json.dumps(model.requests)
        # Results that the model has received are in the session.
        finished = {step for step in range(STEPS) if f"finished-{step}" in text}
        running, asked = job.running(), Counter(model.asked)
        code = llc(folder, "resume", "job", "-q", env=job.env)
        problems = job.problems(asked, finished, running)
        return [*problems, f"exit code {code}"] if code else problems


@pytest.mark.parametrize("agent", AGENTS)
def test_killed_at_every_event_of_an_agent(
    agent: str, llc: Runner, tmp_path: Path, installed: Callable[[str], Path]
) -> None:
    """Each step is done once; finished steps are not paid for again."""
    program = installed(agent)
    with Model() as model:
        job = Job(tmp_path / "alone", agent, program, model)
        assert llc(job.folder, "run", "job", "-q", "--no-preflight", env=job.env) == 0
        assert not job.problems(Counter(model.asked), set(), set())
        assert len(model.requests) == STEPS + 1
        writes = llc.writes
    assert writes > STEPS * 3
    points = [(fault, at) for fault in KILLS for at in range(1, writes + 1)]
    if not IS_LARGE:
        # Points at the beginning, in the middle and at the end, each after its write.
        points = [("after", at) for at in range(4, writes - 1, max(1, writes // 5))]
    results = {}
    for fault, at in points:
        problems = kill(llc, tmp_path / f"{fault}-{at}", agent, program, fault, at)
        if problems is not None:
            results[fault, at] = problems
    failed_points = {point: problems for point, problems in results.items() if problems}
    print(
        f"{agent}: {len(results) - len(failed_points)} of {len(results)} points without repeated work;",
        failed_points,
    )
    assert len(results) >= len(points) // 2
    assert len(failed_points) <= 0.05 * len(results), failed_points
