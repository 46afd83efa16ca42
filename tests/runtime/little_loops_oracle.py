"""Run a loop with little-loops in a fully scripted world and print the result.

Run by the Python of an environment that has little-loops: reads [path, scenario] pairs as JSON from its input
and prints a line of JSON for each. llc's side also uses `scripted` and `verdict_of`, so this module imports
nothing of llc, and little-loops only in `main`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SCENARIOS = ("all pass", "all fail", "all error", "first fails", "alternating", "countdown")
# Exit code and output of actions that pass, fail, or break.
RESULTS = {"yes": (0, "1"), "no": (1, "0"), "error": (2, "")}
# Value of required inputs that are not given.
INPUT = "1"
# More actions end a loop on both sides.
MAX_ACTIONS = 500


class TooLong(BaseException):
    """The loop does not end."""


def scripted_answer(scenario: str, number: int) -> str:
    """Answer of the scripted world to the question with this number, from 0: yes, no or error."""
    match scenario:
        case "all pass" | "countdown":
            return "yes"
        case "all fail":
            return "no"
        case "all error":
            return "error"
        case "first fails":
            return "no" if number == 0 else "yes"
    return "no" if number % 2 else "yes"


def scripted(scenario: str, number: int) -> tuple[int, str]:
    """Exit code and output of the action with this number."""
    if number >= MAX_ACTIONS:
        raise TooLong
    if scenario == "countdown":
        return 0, str(max(0, 5 - number))
    return RESULTS[scripted_answer(scenario, number)]


def verdict_of(answer: str, allowed: Sequence[str]) -> str:
    """The verdict of a model that says yes or no: one of these words, or the first or last of its schema."""
    words = ("yes", "success") if answer == "yes" else ("no", "failure")
    return next((word for word in words if word in allowed), allowed[0 if answer == "yes" else -1])


def main() -> None:
    """Run the requested loops."""
    from little_loops.fsm import context_seed, evaluators, executor  # type: ignore[import-not-found]
    from little_loops.fsm.types import ActionResult  # type: ignore[import-not-found]
    from little_loops.fsm.validation import load_and_validate  # type: ignore[import-not-found]

    counts = SimpleNamespace(actions=0, models=0, scenario="")

    class Runner:
        def run(self, action: str, *_: Any, **__: Any) -> Any:
            code, output = scripted(counts.scenario, counts.actions)
            counts.actions += 1
            return ActionResult(output=output, stderr="", exit_code=code, duration_ms=1)

    def judge(output: str, prompt: str | None = None, schema: Any = None, **_: Any) -> Any:
        answer = scripted_answer(counts.scenario, counts.models)
        counts.models += 1
        if answer == "error":
            return evaluators.EvaluationResult(verdict="error", details={"error": "scripted"})
        verdict = (schema or {}).get("properties", {}).get("verdict", {})
        allowed = verdict.get("enum") or ["yes", "no"]
        return evaluators.EvaluationResult(verdict=verdict_of(answer, allowed), details={"confidence": 1.0})

    def raise_too_long(*_: Any) -> None:
        raise TooLong

    evaluators.evaluate_llm_structured = executor.evaluate_llm_structured = judge
    same = SimpleNamespace(stdout="same", stderr="", returncode=0)
    evaluators.subprocess = SimpleNamespace(run=lambda *_, **__: same, TimeoutExpired=TimeoutError)
    executor.FSMExecutor._interruptible_sleep = lambda _, seconds, *__, **___: seconds

    def call(_: Any, cmd: list[str], **__: Any) -> Any:
        code, output = scripted(counts.scenario, counts.actions)
        counts.actions += 1
        output_json = json.dumps({"isError": code != 0, "content": output})
        return ActionResult(output=output_json, stderr="", exit_code=min(code, 1), duration_ms=1)

    executor.FSMExecutor._run_subprocess = call  # used only by `mcp-call`
    signal.signal(signal.SIGALRM, raise_too_long)
    home = Path.cwd()
    for number, (path, scenario) in enumerate(json.load(sys.stdin)):
        given: dict[str, str] = {}
        while True:
            recorded: dict[str, Any] = {"path": [], "verdicts": [], "end": None, "given": given}

            def note(event: dict[str, Any], recorded: dict[str, Any] = recorded) -> None:
                if event["event"] == "state_enter":
                    recorded["path"].append(event["state"])
                elif event["event"] == "evaluate":
                    recorded["verdicts"].append((recorded["path"][-1], event["verdict"]))

            counts.actions = counts.models = 0
            counts.scenario = scenario
            # little-loops keeps its state in files, also for the loops that a loop runs.
            folder = home / f"{number}-{len(given)}"
            folder.mkdir()
            os.chdir(folder)
            loop, _ = load_and_validate(Path(path))
            loop.context.setdefault("run_dir", "run/")
            context_seed.seed_parameter_defaults(loop.context, loop.parameters)
            needed = [name for name, parameter in loop.parameters.items() if parameter.required]
            missing = [key for key in ("input", *loop.required_inputs, *needed) if not loop.context.get(key)]
            loop.context |= dict.fromkeys(missing, INPUT) | given
            # As the command line of little-loops does.
            context_seed.seed_confidence_thresholds(loop.context)
            context_seed.inject_design_context(loop.context)
            context_seed.derive_input_hash(loop.context)
            loop.backoff = 0
            # The folder in which little-loops looks for loops that a loop runs.
            loops = next(parent for parent in Path(path).parents if parent.name == "loops")
            runner = Runner()
            signal.alarm(20)
            try:
                ran = executor.FSMExecutor(loop, note, runner, loops_dir=loops).run()
                recorded["end"] = [ran.terminated_by, ran.failure_terminal, ran.error]
            except TooLong:
                recorded["end"] = ["too long", None, None]
            except Exception as error:
                recorded["end"] = ["error", None, repr(error)]
            finally:
                signal.alarm(0)
            missing_name = re.search(r"Path '(\w+)' not found in context", recorded["end"][2] or "")
            if missing_name is None or missing_name[1] in given or missing_name[1] == "run_dir":
                break
            given[missing_name[1]] = INPUT
        print("ORACLE" + json.dumps(recorded), flush=True)


if __name__ == "__main__":
    main()
