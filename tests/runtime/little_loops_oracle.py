"""Run a loop with little-loops in a fully scripted world and print the result.

Run by the Python of an environment that has little-loops: reads [path, scenario] pairs as JSON from its input
and prints a line of JSON for each. `scripted` and `verdict_of` are for both sides, so this module imports
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
# The result of what passes, fails, and breaks.
RESULTS = {"yes": (0, "1"), "no": (1, "0"), "error": (2, "")}
# Of what is not given and has to be.
INPUT = "1"
# More actions than this end a loop on both sides.
MOST_ACTIONS = 500


class TooLong(BaseException):
    """A loop goes on and on."""


def answer(scenario: str, number: int) -> str:
    """What the world says to the question with this number, from 0: yes, no or error."""
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
    if number >= MOST_ACTIONS:
        raise TooLong
    if scenario == "countdown":
        return 0, str(max(0, 5 - number))
    return RESULTS[answer(scenario, number)]


def verdict_of(said: str, allowed: Sequence[str]) -> str:
    """The verdict of a model that says yes or no, by its own words, or the first and last of its schema."""
    words = ("yes", "success") if said == "yes" else ("no", "failure")
    return next((word for word in words if word in allowed), allowed[0 if said == "yes" else -1])


def main() -> None:
    """Run every loop that is asked for."""
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
        said = answer(counts.scenario, counts.models)
        counts.models += 1
        if said == "error":
            return evaluators.EvaluationResult(verdict="error", details={"error": "scripted"})
        verdict = (schema or {}).get("properties", {}).get("verdict", {})
        allowed = verdict.get("enum") or ["yes", "no"]
        return evaluators.EvaluationResult(verdict=verdict_of(said, allowed), details={"confidence": 1.0})

    def late(*_: Any) -> None:
        raise TooLong

    evaluators.evaluate_llm_structured = executor.evaluate_llm_structured = judge
    same = SimpleNamespace(stdout="same", stderr="", returncode=0)
    evaluators.subprocess = SimpleNamespace(run=lambda *_, **__: same, TimeoutExpired=TimeoutError)
    executor.FSMExecutor._interruptible_sleep = lambda _, seconds, *__, **___: seconds

    def call(_: Any, cmd: list[str], **__: Any) -> Any:
        code, output = scripted(counts.scenario, counts.actions)
        counts.actions += 1
        said = json.dumps({"isError": code != 0, "content": output})
        return ActionResult(output=said, stderr="", exit_code=min(code, 1), duration_ms=1)

    executor.FSMExecutor._run_subprocess = call  # of `mcp-call` alone
    signal.signal(signal.SIGALRM, late)
    home = Path.cwd()
    for number, (path, scenario) in enumerate(json.load(sys.stdin)):
        given: dict[str, str] = {}
        while True:
            seen: dict[str, Any] = {"path": [], "verdicts": [], "end": None, "given": given}

            def note(event: dict[str, Any], seen: dict[str, Any] = seen) -> None:
                if event["event"] == "state_enter":
                    seen["path"].append(event["state"])
                elif event["event"] == "evaluate":
                    seen["verdicts"].append((seen["path"][-1], event["verdict"]))

            counts.actions = counts.models = 0
            counts.scenario = scenario
            # It keeps what it has seen in files, also of the loops that a loop runs.
            folder = home / f"{number}-{len(given)}"
            folder.mkdir()
            os.chdir(folder)
            loop, _ = load_and_validate(Path(path))
            loop.context.setdefault("run_dir", "run/")
            context_seed.seed_parameter_defaults(loop.context, loop.parameters)
            needed = [name for name, one in loop.parameters.items() if one.required]
            missing = [key for key in ("input", *loop.required_inputs, *needed) if not loop.context.get(key)]
            loop.context |= dict.fromkeys(missing, INPUT) | given
            # As its command line does.
            context_seed.seed_confidence_thresholds(loop.context)
            context_seed.inject_design_context(loop.context)
            context_seed.derive_input_hash(loop.context)
            loop.backoff = 0
            # Where it looks for the loops that a loop runs.
            loops = next(parent for parent in Path(path).parents if parent.name == "loops")
            runner = Runner()
            signal.alarm(20)
            try:
                ran = executor.FSMExecutor(loop, note, runner, loops_dir=loops).run()
                seen["end"] = [ran.terminated_by, ran.failure_terminal, ran.error]
            except TooLong:
                seen["end"] = ["too long", None, None]
            except Exception as error:
                seen["end"] = ["error", None, repr(error)]
            finally:
                signal.alarm(0)
            absent = re.search(r"Path '(\w+)' not found in context", seen["end"][2] or "")
            if absent is None or absent[1] in given or absent[1] == "run_dir":
                break
            given[absent[1]] = INPUT
        print("ORACLE" + json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
