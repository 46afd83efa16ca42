"""`llc create`: a loop from options, from answers or from a description; shown, checked, saved.

Owns the order of that and what each option sets. The questions are `wizard`'s, YAML and files
`drafts`', the model `describing`'s, pins `pinning`'s. `spec/create.md`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

from ...frontend.loop.paradigms import PARADIGMS
from ...frontend.source.yaml_writer import entry
from ...ir.diagnostics import CompileError, render_all, suggest
from ...ir.scalars import read_scalar
from ..host.effect_context import Interrupted
from ..host.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, UserError
from ..host.screen import Screen, is_attended, printable
from ..host.secrets import masked
from . import drafts, pinning, ready_creation, wizard
from .author import Author
from .describing import Described
from .drafts import Draft
from .ready_loops import check_of
from .wizard import action_of

# What belongs to which paradigm; all else belongs to every loop.
OWN = {
    "goal": ("goal", "tool"),
    "convergence": ("check", "toward", "using", "tolerance", "direction"),
    "invariants": ("constraint", "fix"),
    "imperative": ("step", "until", "until_fails"),
    "fsm": ("state", "route", "initial"),
    "natural": ("tool",),
}
_SETTINGS = ("description", "max_iterations", "timeout", "backoff", "maintain", "maintain_delay", "scope")


def run(given: dict[str, Any]) -> int:
    """The verb; the exit code. given: its options by name."""
    if given["pin"] and not given["ready"]:
        return pinning.run(given)
    try:
        if given["ready"]:
            return ready_creation.run(given, _person)
        if given["loops"] or given["assignments"]:
            name = (given["loops"] or ["NAME"])[0]
            what = "an argument" if given["loops"] else "--set"
            help = f"llc create --from {name[:60]}; to name a new loop: --name NAME"
            raise UserError("bad-option", f"{what} is for --from or --pin", help)
        return _Creation(given).run()
    except (KeyboardInterrupt, Interrupted):
        _say("\ninterrupted; nothing was saved")
        return EXIT_INTERRUPTED
    except EOFError:
        _say("\nnothing was saved")
        return EXIT_FAILURE


def _person() -> wizard.Asker:
    from .menus import Menus

    return Menus()


def _say(text: str) -> None:
    Screen(sys.stderr).write(text + "\n")


class _Creation:
    """One loop that is made."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.out = Screen(sys.stdout)
        self.errors = Screen(sys.stderr)
        self.has_person = is_attended()
        self.asker: wizard.Asker | None = None
        self.described: Described | None = None

    def run(self) -> int:
        given = self.given
        data = data_of(given)
        if given["name"]:
            drafts.check_name(given["name"])
            self.refuse_taken(given["name"])
        if given["describe"] is not None:
            return self.describe(given["describe"], data)
        if self.is_incomplete(data):
            data = wizard.ask(self.person(), given["paradigm"], data)
            if wizard.READY in data:
                given = {**given, "ready": True, "loops": [data[wizard.READY]]}
                return ready_creation.run(given, self.person)
            words = data.pop(wizard.DESCRIBED, None)
            if words is not None:
                return self.describe(words, data)
        elif not data.get("name"):
            data["name"] = drafts.fit_name(wizard.propose_name(data))
        self.refuse_missing(data)
        if data["paradigm"] == "natural":
            return self.natural(data)
        return self.finish(self.drafted(data))

    # --- ways to a draft --------------------------------------------------------------------------

    def is_incomplete(self, data: dict[str, Any]) -> bool:
        """Whether a dialogue is possible and needed."""
        paradigm = data.get("paradigm")
        if paradigm is None:
            if any(self.given[name] for names in OWN.values() for name in names):
                raise UserError(
                    "bad-option", "it is not said what the loop is", f"--paradigm {'|'.join(PARADIGMS)}"
                )
            if not self.has_person:
                help = "give the answers by options, as in llc create --paradigm goal --goal … --tool …"
                raise UserError("no-terminal", "no terminal to ask questions", help)
            return True
        return self.has_person and not self.given["yes"] and bool(_missing(data))

    def person(self) -> wizard.Asker:
        if self.asker is None:
            self.asker = _person()
        return self.asker

    def refuse_missing(self, data: dict[str, Any]) -> None:
        missing = _missing(data)
        if missing:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
            raise UserError("bad-option", f"a loop of paradigm `{data['paradigm']}` needs {flags}")

    def drafted(self, data: dict[str, Any]) -> Draft:
        try:
            return drafts.draft(data)
        except CompileError as error:
            if self.asker is not None:  # show what was typed
                self.errors.write(drafts.yaml_of(data) + "\n")
            raise CompileError(error.diagnostics, error.sources) from None

    def describe(self, words: str, data: dict[str, Any]) -> int:
        """A loop that a model makes of words."""
        if not words.strip():
            raise UserError("bad-option", "the description is empty")
        settings = {name: value for name, value in data.items() if name in _SETTINGS}
        if self.given["paradigm"]:
            words += f"\n\nWrite it in paradigm `{self.given['paradigm']}`."
        self.described = made = self.ask_model(words, data.get("name"), self.given["tool"] or (), settings)
        return self.finish(made.draft)

    def natural(self, data: dict[str, Any]) -> int:
        """Save the description, with the loop that a model makes of it pinned."""
        drafts.check_name(data["name"])
        text = drafts.yaml_of(data)
        if self.given["no_pin"]:
            return self.finish(Draft(data["name"], "natural", text, None))
        self.described = made = self.ask_model(data["description"], data["name"], data.get("tools", ()), {})
        kept = Draft(data["name"], "natural", text, made.draft.compiled)
        return self.finish(kept, made)

    def ask_model(self, words: str, name: str | None, tools: Any, settings: dict[str, Any]) -> Described:
        with contextlib.closing(Author(self.given["model"], self.errors)) as author:
            return author.write(words, name=name, tools=tools, settings=settings)

    # --- show and save ----------------------------------------------------------------------------

    def finish(self, made: Draft, pinned: Described | None = None) -> int:
        """Show it, ask whether it is to be saved, save it."""
        if self.given["print"]:
            self.out.deliver(self.out.encode(made.text))
            return EXIT_OK
        self.refuse_taken(made.name)
        if not self.given["json"]:
            self.show(made, pinned)
        if not self.given["yes"]:
            if not self.has_person:
                help = "--yes saves it, --print only prints the YAML"
                raise UserError("not-confirmed", f"{made.path} is not saved: no terminal to confirm it", help)
            if not self.person().confirm(f"Save to {made.path}?"):
                _say("nothing was saved")
                return EXIT_FAILURE
        may_replace = self.given["force"]
        while drafts.taken(made.name) and not may_replace and self.has_person and not self.given["yes"]:
            made, may_replace = self.settle(made)
        path = drafts.save(made, may_replace)
        if pinned is not None:
            pinning.keep(path, pinned)
        self.told(made, path, pinned)
        return EXIT_OK

    def settle(self, made: Draft) -> tuple[Draft, bool]:
        """Another name for a draft whose name is taken, or leave to replace what is there."""
        path = drafts.taken(made.name)
        if path == made.path and self.person().confirm(
            f"{path} is there already. Replace it?", default=False
        ):
            return made, True
        self.person().tell(f"{path} is there already")
        name = self.person().text("Another name?", check=drafts.problem_of_name)
        return renamed(made, name), False

    def refuse_taken(self, name: str) -> None:
        """Refuse a name that is taken, without a terminal, before anything is shown or paid for."""
        if not (self.given["print"] or (self.has_person and not self.given["yes"])):
            drafts.refuse_taken(name, self.given["force"])

    def show(self, made: Draft, pinned: Described | None) -> None:
        paint = self.errors.paint
        parts = ["Here's the loop configuration:\n", made.text]
        if pinned is not None:
            parts += [f"which {printable(pinned.model)} reads as:\n", pinned.draft.text]
        if made.compiled is not None:
            parts += ["It compiles to:\n", made.states()]
            warnings = [one for one in made.compiled.diagnostics if not one.is_error]
            if warnings:
                parts.append(render_all(warnings, made.compiled.sources, self.errors.color) + "\n")
        text = "\n".join(paint(part, "bold") if part.endswith(":\n") else part for part in parts)
        self.errors.write(masked("\n".join(map(_plain, text.split("\n")))) + "\n")

    def told(self, made: Draft, path: str, pinned: Described | None) -> None:
        if self.given["json"]:
            about: dict[str, Any] = {
                "name": made.name,
                "path": path,
                "paradigm": made.paradigm,
                "yaml": made.text,
                "pinned": pinned.draft.text if pinned is not None else None,
                "model": self.described.model if self.described is not None else None,
                "usage": self.described.usage if self.described is not None else None,
            }
            text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
        else:
            is_open = made.paradigm == "natural" and pinned is None
            verb = f"say what it means with: llc create --pin {made.name}" if is_open else None
            text = f"saved {path}\n{verb or f'run it with: llc run {made.name}'}\n"
        self.out.deliver(self.out.encode(masked(text)))


def _plain(line: str) -> str:
    """A line that cannot steer the terminal, but for the colours that are ours."""
    return line if "\x1b" in line else printable(line)


def renamed(made: Draft, name: str) -> Draft:
    """The same loop under another name, in its text too."""
    lines = made.text.split("\n")
    at = next((i for i, line in enumerate(lines) if line.startswith("name:")), None)
    new = entry("name", name, 0)
    if at is None:
        lines[1:1] = new
    else:
        lines[at : at + 1] = new
    return Draft(name, made.paradigm, "\n".join(lines), made.compiled)


# --- options ----------------------------------------------------------------------------------


def data_of(given: dict[str, Any]) -> dict[str, Any]:
    """The loop that the options describe, as far as they do. UserError where they contradict."""
    paradigm = given["paradigm"]
    if paradigm is not None and paradigm not in PARADIGMS:
        raise UserError(
            "bad-option", f"no paradigm `{paradigm[:40]}`", suggest(paradigm, PARADIGMS, "paradigms")
        )
    allowed = OWN.get(paradigm or "", ()) if given["describe"] is None else ("tool",)
    for names in OWN.values():
        for name in names:
            if given[name] and name not in allowed and (paradigm or given["describe"] is not None):
                owner = " or ".join(kind for kind, own in OWN.items() if name in own)
                raise UserError("bad-option", f"--{name.replace('_', '-')} belongs to --paradigm {owner}")
    data: dict[str, Any] = {"paradigm": paradigm} if paradigm is not None else {}
    if given["name"]:
        data["name"] = given["name"]
    for name in ("description", "timeout", "backoff", "maintain_delay", "max_iterations"):
        if given[name] is not None:
            value = given[name]
            data[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    if given["maintain"]:
        data["maintain"] = True
    if given["scope"]:
        data["scope"] = list(given["scope"])
    if given["describe"] is None and paradigm is not None:
        data |= _READ[paradigm](given)
    return data


def _goal(given: dict[str, Any]) -> dict[str, Any]:
    tools = list(given["tool"] or ())
    return _present(goal=given["goal"], tools=[*map(check_of, tools[:1]), *map(action_of, tools[1:])])


def _convergence(given: dict[str, Any]) -> dict[str, Any]:
    toward, tolerance = given["toward"], given["tolerance"]
    return _present(
        check=given["check"],
        toward=_scalar(toward) if toward is not None else None,
        using=action_of(given["using"]) if given["using"] is not None else None,
        tolerance=_scalar(tolerance) if tolerance is not None else None,
        direction=given["direction"],
    )


def _invariants(given: dict[str, Any]) -> dict[str, Any]:
    fixes = dict(_pairs("--fix", given["fix"]))
    found = []
    for name, check in _pairs("--constraint", given["constraint"]):
        if name not in fixes:
            raise UserError("bad-option", f"nothing repairs `{name}`", f"add --fix {name}=COMMAND")
        found.append({"name": name, "check": check_of(check), "fix": action_of(fixes.pop(name))})
    if fixes:
        name = next(iter(fixes))
        raise UserError("bad-option", f"no constraint is called `{name}`", f"add --constraint {name}=COMMAND")
    return _present(constraints=found)


def _imperative(given: dict[str, Any]) -> dict[str, Any]:
    until: dict[str, Any] | None = {"check": check_of(given["until"])} if given["until"] is not None else None
    if given["until_fails"]:
        if until is None:
            raise UserError("bad-option", "--until-fails says how --until COMMAND is meant")
        until["passes"] = False
    return _present(steps=[action_of(step) for step in given["step"] or ()], until=until)


def _fsm(given: dict[str, Any]) -> dict[str, Any]:
    states: dict[str, dict[str, Any]] = {}
    for name, action in _pairs("--state", given["state"]):
        states[name] = {"action": action} if action.strip() else {"terminal": True}
    for place, target in _pairs("--route", given["route"]):
        name, dot, verdict = place.rpartition(".")
        if not dot or name not in states:
            help = suggest(name or place, states, "states") or "add --state NAME=COMMAND"
            raise UserError("bad-option", f"--route takes STATE.VERDICT=STATE, not `{place[:60]}=…`", help)
        if verdict == "status":
            states[name]["status"] = target
        elif verdict in ("next", "success", "failure", "error"):
            states[name][verdict if verdict == "next" else f"on_{verdict}"] = target
        else:
            states[name].setdefault("route", {})[verdict] = target
    for name, state in states.items():
        if "action" in state:
            states[name] = wizard.state_of(state.pop("action"), state)
    return _present(initial=given["initial"] or next(iter(states), None), states=states)


def _natural(given: dict[str, Any]) -> dict[str, Any]:
    return _present(tools=list(given["tool"] or ()))


_READ = {
    "goal": _goal,
    "convergence": _convergence,
    "invariants": _invariants,
    "imperative": _imperative,
    "fsm": _fsm,
    "natural": _natural,
}
_NEEDED = {
    "goal": {"goal": "goal", "tools": "tool"},
    "convergence": {"check": "check", "toward": "toward", "using": "using"},
    "invariants": {"constraints": "constraint"},
    "imperative": {"steps": "step", "until": "until"},
    "fsm": {"states": "state"},
    "natural": {"description": "description"},
}


def _missing(data: dict[str, Any]) -> list[str]:
    """The options that a loop lacks to be one."""
    return [flag for key, flag in _NEEDED.get(str(data.get("paradigm")), {}).items() if key not in data]


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value not in ([], {})}


def _pairs(flag: str, texts: Any) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not (name and sign):
            raise UserError("bad-option", f"{flag} takes NAME=VALUE, not `{text[:60]}`")
        if any(other == name for other, _ in found):
            raise UserError("bad-option", f"{flag} {name}=… is given twice")
        found.append((name, value))
    return found


def _scalar(text: str) -> Any:
    try:
        return read_scalar(text)
    except ValueError:
        return text
