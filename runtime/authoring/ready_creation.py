"""`llc create --from`: list the ready loops, or create a loop from one.

Owns the order of the steps (questions, checks, saving) and the output. `ready_loops` owns the loops and their
parameters, `drafts` the files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...ir.diagnostics import suggest
from ...ir.nodes import Limits
from ...stdlib import READY_LOOPS
from ..host.errors import EXIT_OK, UserError, clean
from ..host.screen import Screen, is_attended, printable
from ..host.secrets import masked
from ..journal.codec import json_text
from . import drafts, ready_loops
from .ready_loops import Command, ReadyLoop
from .wizard import Asker

PAGE = "spec/ready.md"
# The options of `create` that apply with `--from`.
_OPTIONS = ("ready", "loops", "assignments", "name", "yes", "force", "print", "json")


def run(options: Mapping[str, Any], get_asker: Callable[[], Asker]) -> int:
    """Execute `llc create --from`; return the exit code.

    options: the options of `create` by name; its arguments name the ready loop.
    """
    conflicting = next((name for name, value in options.items() if value and name not in _OPTIONS), None)
    if conflicting is not None:
        message = f"--{conflicting.replace('_', '-')} cannot be combined with --from"
        raise UserError("bad-option", message, "--set NAME=VALUE sets a parameter of a ready loop")
    names = options["loops"] or []
    if len(names) > 1:
        raise UserError(
            "bad-argument", f"--from takes one ready loop, not {len(names)}", "create them one by one"
        )
    if not names:
        _deliver(_listing(options["json"]))
        return EXIT_OK
    ready = ready_loops.load(names[0])
    answers = assignments(ready, names[0], options["assignments"] or ())
    has_dialogue = is_attended() and not (options["yes"] or options["json"] or options["print"])
    name, may_replace = options["name"] or names[0], options["force"]
    drafts.check_name(name)
    if has_dialogue:
        asker = get_asker()
        name, may_replace = _free_name(asker, name, may_replace)
        answers = _ask(asker, ready, answers)
    elif not options["print"]:
        drafts.refuse_taken(name, may_replace)
    values = ready_loops.choose(ready, answers)
    _refuse_missing(ready, names[0], values)
    draft = drafts.of_text(name, ready_loops.render(ready, name, values))
    if options["print"]:
        _deliver(draft.text)
        return EXIT_OK
    path = drafts.save(draft, may_replace)
    assert draft.compiled is not None
    limits = draft.compiled.program.meta.limits
    if options["json"]:
        result = {
            "name": name,
            "path": path,
            "from": names[0],
            "paradigm": draft.paradigm,
            "parameters": {key: _text(value) for key, value in values.items()},
            "limits": {"usd": limits.budget_usd, "iterations": limits.max_iterations},
            "page": f"{PAGE}#{names[0]}",
            "yaml": draft.text,
        }
        _deliver(json_text(result, indent=2) + "\n")
    else:
        _deliver(_report(name, path, names[0], values, limits))
    return EXIT_OK


def assignments(ready: ReadyLoop, name: str, texts: Any) -> dict[str, str]:
    """The values of `--set`, by parameter. Raises UserError."""
    values: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not (key and sign):
            raise UserError("bad-option", f"--set takes NAME=VALUE, not `{clean(text, 60)}`")
        if key not in ready.parameters:
            help = suggest(key, ready.parameters, "parameters")
            raise UserError("bad-option", f"`{name}` has no parameter `{clean(key, 60)}`", help)
        values[key] = value
    return values


# --- questions --------------------------------------------------------------------------------


def _ask(asker: Asker, ready: ReadyLoop, answers: dict[str, str]) -> dict[str, str]:
    """The answers, completed by questions for the other parameters; defaults depend on earlier answers."""
    for name, parameter in ready.parameters.items():
        if parameter.is_asked and name not in answers:
            value = ready_loops.choose(ready, answers)[name]
            default = "" if value is None else _text(value)
            hint = "" if default else f", such as: {parameter.sample}"
            answer = asker.text(parameter.doc + hint, default, partial(ready_loops.problem_of, parameter))
            if answer != default:
                answers[name] = answer
    return answers


def _free_name(asker: Asker, name: str, may_replace: bool) -> tuple[str, bool]:
    """A free name, or a taken name with the permission (True) to replace its loop."""
    while not may_replace and (path := drafts.file_of(name)) is not None:
        is_own = path == drafts.path_of(name)
        if is_own and asker.confirm(f"{path} exists. Replace it?", default=False):
            return name, True
        if not is_own:
            asker.tell(f"{path} exists")
        name = asker.text("Another name?", check=drafts.problem_of_name)
    return name, may_replace


def _refuse_missing(ready: ReadyLoop, name: str, values: Mapping[str, Any]) -> None:
    missing = [ready.parameters[key] for key, value in values.items() if value is None]
    if missing:
        example = " ".join(f'--set {parameter.name}="{parameter.sample}"' for parameter in missing)
        names = " and ".join(f"`{parameter.name}`" for parameter in missing)
        raise UserError("bad-option", f"`{name}` needs values for {names}", f"such as {example}")


# --- output -----------------------------------------------------------------------------------


def _listing(as_json: bool) -> str:
    """All ready loops with their summaries."""
    loops = {name: ready_loops.load(name) for name in READY_LOOPS}
    if as_json:
        rows = [
            {
                "name": name,
                "summary": ready.summary,
                "parameters": {key: parameter.doc for key, parameter in ready.parameters.items()},
            }
            for name, ready in loops.items()
        ]
        return json_text(rows, indent=2) + "\n"
    width = max(map(len, loops))
    lines = [f"{name:{width}}  {ready.summary}" for name, ready in loops.items()]
    return "\n".join([*lines, "", "create one with: llc create --from NAME"]) + "\n"


def _report(name: str, path: str, source: str, values: Mapping[str, Any], limits: Limits) -> str:
    """The saved file with its values, the commands to run it, and its cost limit."""
    width = max(map(len, values))
    lines = [
        f"saved {path}",
        *(f"  {key:{width}}  {_text(value)}" for key, value in values.items()),
        f"run it with: llc run {name} (first see what it would do: llc run {name} --dry-run)",
        f"it may cost: {limits.budget_usd:g} USD of agent calls, in at most {limits.max_iterations} "
        "iterations; a call that begins within the budget may exceed it",
        f"more about it: {PAGE}, section {source}",
    ]
    return "\n".join(map(printable, lines)) + "\n"


def _text(value: Any) -> str:
    return value.run if isinstance(value, Command) else str(value)


def _deliver(text: str) -> None:
    screen = Screen(sys.stdout)
    screen.deliver(screen.encode(masked(text)))
