"""Projects and process starters of the crash tests."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import postgres

from llc.ir.text import parse_program
from llc.runtime.journal import journal, reader
from llc.runtime.journal.events import EffectFinished, Event
from llc.vm.code.emit import emit

KILLS = ("before", "torn", "after")

RETRY = """
name: job
initial: count
max_iterations: 8
backoff: 0.01
states:
  count:
    action: 'echo "$LLC_EFFECT_ID count" >> log; n=${captured.n.output:default=0}; expr "$n" + 1'
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
    action: 'echo "$LLC_EFFECT_ID work" >> log; n=${captured.n.output:default=0}; expr "$n" + 1'
    capture: n
    next: done
  done: {terminal: true, on_maintain: work}
"""
# An action in IR text that logs its execution and prints `{0}`.
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
    action: 'echo "$LLC_EFFECT_ID count" >> log; n=${captured.n.output:default=0}; expr "$n" + 1'
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
    """Runs llc in a process with a simulated crash; see `crash_runner`.

    job: settings of all jobs. writes: number of writes of the last job to the files of its run. With a
    `database`, the runs in it are exported after each job to the folder where the tests expect them.
    """

    def __init__(self, **job: Any) -> None:
        self.job = job
        self.database = job.get("database")
        self.writes = 0
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("runtime") / "crash_runner.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, cwd: Path, *words: str, **job: Any) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"cwd": str(cwd), "words": words, **self.job, **job}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.writes = answer["writes"]
        if self.database is not None:
            postgres.export_runs(self.database, str(cwd), cwd)
        return int(answer["code"])

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()


class Project:
    """A folder with one program and the results of its runs; or a copy of such a folder."""

    def __init__(
        self, folder: Path, name: str, text: str | None = None, path: str = "", copy: Project | None = None
    ) -> None:
        self.folder = folder
        if copy is not None:
            shutil.copytree(copy.folder, folder, ignore=shutil.ignore_patterns("keeper"))
            self.target = copy.target
            return
        (folder / ".loops").mkdir(parents=True)
        text = text or PROGRAMS[name]
        if path:
            self.target = "job"
            (folder / path).write_text(text)
        elif text.lstrip().startswith("program"):
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
        return [event.wire for path in paths for event in reader.read(str(path)) if isinstance(event, Event)]

    def finished(self) -> set[str]:
        return {str(e["seq"]) for e in self.events() if e["event"] in ("action_complete", "effect_complete")}

    def finished_before_damage(self) -> set[str]:
        """The effects with readable results before the first damage in the journal."""
        (path,) = self.folder.glob(".loops/.*/job-*/job.events.jsonl")
        blobs = journal.Blobs(str(path.parent / "outputs"))
        effects: set[str] = set()
        for event in reader.read(str(path)):
            if not isinstance(event, Event):
                break
            if isinstance(event, EffectFinished):
                try:
                    journal.unpack(event.result, blobs.fetch)
                except journal.BlobError:
                    break
                effects.add(str(event.seq))
        return effects

    def end(self) -> dict[str, Any]:
        """The `run_end` event with its original values."""
        (path,) = self.folder.glob(".loops/.history/job-*/job.events.jsonl")
        event = reader.last_event(str(path))
        assert event is not None
        return dict(journal.unpack(event.wire, journal.Blobs(str(path.parent / "outputs")).fetch))

    def printed(self) -> str:
        """The output of the runs."""
        return (self.folder / "shown").read_text()

    def is_run(self) -> bool:
        return any(self.folder.glob(".loops/.*/job-*/job.events.jsonl")) and bool(self.events())

    def has_ended(self) -> bool:
        return any(self.folder.glob(".loops/.history/job-*"))

    def observable_history(self, name: str) -> Any:
        """The parts of a run that must be the same after any number of crashes."""
        end = [event for event in self.events() if event["event"] == "run_end"][-1]
        names = ("status", "terminated_by", "final_state", "iterations", "steps", "value", "error")
        outcome = {name: end[name] for name in names}
        notes = [
            {name: value for name, value in event.items() if name != "ts"}
            for event in self.events()
            if event["event"] in ("state_enter", "evaluate", "route", "cycle", "loop_complete")
        ]
        return outcome, notes if name in SEQUENTIAL or name == "judged" else None
