"""`llc create`: create a loop from options, answers or a description; check, show and save it.

Owns the order of these steps and the meaning of each option (`spec/create.md`). `wizard` owns the questions,
`drafts` the YAML and files, `generation` the model, `pins` the pins.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

from ...frontend.loop.paradigms import PARADIGMS
from ...frontend.source.yaml_writer import entry
from ...ir.diagnostics import CompileError, render_all, suggest
from ...ir.scalars import scalar_or_text
from ..host.effect_context import Interrupted
from ..host.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, UserError
from ..host.screen import Screen, is_attended, printable
from ..host.secrets import masked
from . import drafts, pins, ready_creation, wizard
from .author import Author
from .drafts import Draft
from .generation import GeneratedLoop
from .ready_loops import check_of
from .wizard import action_of

# Options that only these paradigms have; all others apply to every loop.
PARADIGM_OPTIONS = {
    "goal": ("goal", "tool"),
    "convergence": ("check", "toward", "using", "tolerance", "direction"),
    "invariants": ("constraint", "fix"),
    "imperative": ("step", "until", "until_fails"),
    "fsm": ("state", "route", "initial"),
    "natural": ("tool",),
}
_SETTINGS = ("description", "max_iterations", "timeout", "backoff", "maintain", "maintain_delay", "scope")


def run(options: dict[str, Any]) -> int:
    """Execute the subcommand; return the exit code. options: its options by name."""
    if options["pin"] and not options["ready"]:
        return pins.run(options, _open_menus)
    try:
        if options["ready"]:
            return ready_creation.run(options, _open_menus)
        if options["loops"] or options["assignments"]:
            name = (options["loops"] or ["NAME"])[0]
            argument = "an argument" if options["loops"] else "--set"
            help = f"llc create --from {name[:60]}; to name a new loop: --name NAME"
            raise UserError("bad-option", f"{argument} requires --from or --pin", help)
        return _Creation(options).run()
    except (KeyboardInterrupt, Interrupted):
        _write("\ninterrupted; nothing was saved")
        return EXIT_INTERRUPTED
    except EOFError:
        _write("\nnothing was saved")
        return EXIT_FAILURE


def _open_menus() -> wizard.Asker:
    """Return menus in the terminal; imports `prompt_toolkit`."""
    from .menus import Menus

    return Menus()


def _write(text: str) -> None:
    Screen(sys.stderr).write(text + "\n")


class _Creation:
    """Creation of one loop. options: the options by name."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.out = Screen(sys.stdout)
        self.errors = Screen(sys.stderr)
        self.is_attended = is_attended()
        self.asker: wizard.Asker | None = None
        self.generated: GeneratedLoop | None = None

    def run(self) -> int:
        options = self.options
        data = data_of(options)
        if options["name"]:
            drafts.check_name(options["name"])
            self.refuse_taken(options["name"])
        if options["describe"] is not None:
            return self.generate(options["describe"], data)
        if self.needs_dialogue(data):
            data = wizard.ask(self.get_asker(), options["paradigm"], data)
            if wizard.READY in data:
                options = {**options, "ready": True, "loops": [data[wizard.READY]]}
                return ready_creation.run(options, self.get_asker)
            words = data.pop(wizard.DESCRIBED, None)
            if words is not None:
                return self.generate(words, data)
        elif not data.get("name"):
            data["name"] = drafts.fit_name(wizard.propose_name(data))
        self.refuse_missing(data)
        if data["paradigm"] == "natural":
            return self.create_natural(data)
        return self.finish(self.draft(data))

    # --- ways to a draft --------------------------------------------------------------------------

    def needs_dialogue(self, data: dict[str, Any]) -> bool:
        """Return whether questions are needed. Raises UserError if they are needed but not possible."""
        paradigm = data.get("paradigm")
        if paradigm is None:
            if any(self.options[name] for names in PARADIGM_OPTIONS.values() for name in names):
                raise UserError(
                    "bad-option", "the paradigm is missing", f"add --paradigm {'|'.join(PARADIGMS)}"
                )
            if not self.is_attended:
                help = "give the answers by options, as in llc create --paradigm goal --goal … --tool …"
                raise UserError("no-terminal", "no terminal to ask questions", help)
            return True
        return self.is_attended and not self.options["yes"] and bool(_missing(data))

    def get_asker(self) -> wizard.Asker:
        if self.asker is None:
            self.asker = _open_menus()
        return self.asker

    def refuse_missing(self, data: dict[str, Any]) -> None:
        missing = _missing(data)
        if missing:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
            raise UserError("bad-option", f"a loop of paradigm `{data['paradigm']}` needs {flags}")

    def draft(self, data: dict[str, Any]) -> Draft:
        try:
            return drafts.draft(data)
        except CompileError as error:
            if self.asker is not None:  # show the loop made of the answers
                self.errors.write(drafts.yaml_of(data) + "\n")
            raise CompileError(error.diagnostics, error.sources) from None

    def generate(self, words: str, data: dict[str, Any]) -> int:
        """Create a loop that a model writes from a description."""
        if not words.strip():
            raise UserError("bad-option", "the description is empty")
        settings = {name: value for name, value in data.items() if name in _SETTINGS}
        if self.options["paradigm"]:
            words += f"\n\nWrite it in paradigm `{self.options['paradigm']}`."
        self.generated = loop = self.ask_model(words, data.get("name"), self.options["tool"] or (), settings)
        return self.finish(loop.draft)

    def create_natural(self, data: dict[str, Any]) -> int:
        """Create a loop in paradigm `natural`: the description, and a pin of the loop that a model writes."""
        drafts.check_name(data["name"])
        text = drafts.yaml_of(data)
        if self.options["no_pin"]:
            return self.finish(Draft(data["name"], "natural", text, None))
        self.generated = loop = self.ask_model(data["description"], data["name"], data.get("tools", ()), {})
        return self.finish(Draft(data["name"], "natural", text, loop.draft.compiled), loop)

    def ask_model(self, words: str, name: str | None, tools: Any, settings: dict[str, Any]) -> GeneratedLoop:
        with contextlib.closing(Author(self.options["model"], self.errors)) as author:
            return author.write(words, name=name, tools=tools, settings=settings)

    # --- show and save ----------------------------------------------------------------------------

    def finish(self, draft: Draft, pinned: GeneratedLoop | None = None) -> int:
        """Show the draft, ask for confirmation, save it; return the exit code.

        pinned: the loop that a model wrote for a draft in paradigm `natural`.
        """
        if self.options["print"]:
            self.out.deliver(self.out.encode(draft.text))
            return EXIT_OK
        self.refuse_taken(draft.name)
        if not self.options["json"]:
            self.show(draft, pinned)
        if not self.options["yes"]:
            if not self.is_attended:
                help = "--yes saves it, --print only prints the YAML"
                raise UserError(
                    "not-confirmed", f"{draft.path} is not saved: no terminal to confirm it", help
                )
            if not self.get_asker().confirm(f"Save to {draft.path}?"):
                _write("nothing was saved")
                return EXIT_FAILURE
        may_replace = self.options["force"]
        while drafts.file_of(draft.name) and not may_replace and self.is_attended and not self.options["yes"]:
            draft, may_replace = self.resolve_conflict(draft)
        path = drafts.save(draft, may_replace)
        if pinned is not None:
            pins.pin(path, pinned)
        self.report(draft, path, pinned)
        return EXIT_OK

    def resolve_conflict(self, draft: Draft) -> tuple[Draft, bool]:
        """The draft with another name, or with the permission (True) to replace the existing file."""
        path = drafts.file_of(draft.name)
        asker = self.get_asker()
        if path == draft.path and asker.confirm(f"{path} exists. Replace it?", default=False):
            return draft, True
        asker.tell(f"{path} exists")
        name = asker.text("Another name?", check=drafts.problem_of_name)
        return _rename(draft, name), False

    def refuse_taken(self, name: str) -> None:
        """Refuse a taken name, without a terminal, before anything is shown or paid for."""
        if not (self.options["print"] or (self.is_attended and not self.options["yes"])):
            drafts.refuse_taken(name, self.options["force"])

    def show(self, draft: Draft, pinned: GeneratedLoop | None) -> None:
        paint = self.errors.paint
        parts = ["Here's the loop configuration:\n", draft.text]
        if pinned is not None:
            parts += [f"which {printable(pinned.model)} reads as:\n", pinned.draft.text]
        if draft.compiled is not None:
            parts += ["It compiles to:\n", draft.states()]
            warnings = [warning for warning in draft.compiled.diagnostics if not warning.is_error]
            if warnings:
                parts.append(render_all(warnings, draft.compiled.sources, self.errors.color) + "\n")
        text = "\n".join(paint(part, "bold") if part.endswith(":\n") else part for part in parts)
        self.errors.write(masked("\n".join(map(_printable, text.split("\n")))) + "\n")

    def report(self, draft: Draft, path: str, pinned: GeneratedLoop | None) -> None:
        """Write the result: as JSON, or as text with the next command."""
        if self.options["json"]:
            result: dict[str, Any] = {
                "name": draft.name,
                "path": path,
                "paradigm": draft.paradigm,
                "yaml": draft.text,
                "pinned": pinned.draft.text if pinned is not None else None,
                "model": self.generated.model if self.generated is not None else None,
                "usage": self.generated.usage if self.generated is not None else None,
            }
            text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
        elif draft.paradigm == "natural" and pinned is None:
            text = f"saved {path}\npin its meaning with: llc create --pin {draft.name}\n"
        else:
            text = f"saved {path}\nrun it with: llc run {draft.name}\n"
        self.out.deliver(self.out.encode(masked(text)))


def _printable(line: str) -> str:
    """A line without control characters; a line with our own colour codes is unchanged."""
    return line if "\x1b" in line else printable(line)


def _rename(draft: Draft, name: str) -> Draft:
    """The same loop with another name, also in its text."""
    lines = draft.text.split("\n")
    at = next((i for i, line in enumerate(lines) if line.startswith("name:")), None)
    new = entry("name", name, 0)
    if at is None:
        lines[1:1] = new
    else:
        lines[at : at + 1] = new
    return Draft(name, draft.paradigm, "\n".join(lines), draft.compiled)


# --- options ----------------------------------------------------------------------------------


def data_of(options: dict[str, Any]) -> dict[str, Any]:
    """The fields of the loop that the options set. Raises UserError for contradictory options."""
    paradigm = options["paradigm"]
    if paradigm is not None and paradigm not in PARADIGMS:
        raise UserError(
            "bad-option", f"no paradigm `{paradigm[:40]}`", suggest(paradigm, PARADIGMS, "paradigms")
        )
    allowed = PARADIGM_OPTIONS.get(paradigm or "", ()) if options["describe"] is None else ("tool",)
    for names in PARADIGM_OPTIONS.values():
        for name in names:
            if options[name] and name not in allowed and (paradigm or options["describe"] is not None):
                owner = " or ".join(kind for kind, own in PARADIGM_OPTIONS.items() if name in own)
                raise UserError("bad-option", f"--{name.replace('_', '-')} belongs to --paradigm {owner}")
    data: dict[str, Any] = {"paradigm": paradigm} if paradigm is not None else {}
    if options["name"]:
        data["name"] = options["name"]
    for name in ("description", "timeout", "backoff", "maintain_delay", "max_iterations"):
        if options[name] is not None:
            value = options[name]
            data[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    if options["maintain"]:
        data["maintain"] = True
    if options["scope"]:
        data["scope"] = list(options["scope"])
    if options["describe"] is None and paradigm is not None:
        data |= _READERS[paradigm](options)
    return data


def _goal(options: dict[str, Any]) -> dict[str, Any]:
    tools = list(options["tool"] or ())
    return _present(goal=options["goal"], tools=[*map(check_of, tools[:1]), *map(action_of, tools[1:])])


def _convergence(options: dict[str, Any]) -> dict[str, Any]:
    toward, tolerance = options["toward"], options["tolerance"]
    return _present(
        check=options["check"],
        toward=scalar_or_text(toward) if toward is not None else None,
        using=action_of(options["using"]) if options["using"] is not None else None,
        tolerance=scalar_or_text(tolerance) if tolerance is not None else None,
        direction=options["direction"],
    )


def _invariants(options: dict[str, Any]) -> dict[str, Any]:
    fixes = dict(_pairs("--fix", options["fix"]))
    constraints = []
    for name, check in _pairs("--constraint", options["constraint"]):
        if name not in fixes:
            raise UserError("bad-option", f"the constraint `{name}` has no fix", f"add --fix {name}=COMMAND")
        constraints.append({"name": name, "check": check_of(check), "fix": action_of(fixes.pop(name))})
    if fixes:
        name = next(iter(fixes))
        raise UserError("bad-option", f"no constraint is called `{name}`", f"add --constraint {name}=COMMAND")
    return _present(constraints=constraints)


def _imperative(options: dict[str, Any]) -> dict[str, Any]:
    until: dict[str, Any] | None = (
        {"check": check_of(options["until"])} if options["until"] is not None else None
    )
    if options["until_fails"]:
        if until is None:
            raise UserError("bad-option", "--until-fails requires --until COMMAND")
        until["passes"] = False
    return _present(steps=[action_of(step) for step in options["step"] or ()], until=until)


def _fsm(options: dict[str, Any]) -> dict[str, Any]:
    states: dict[str, dict[str, Any]] = {}
    for name, action in _pairs("--state", options["state"]):
        states[name] = {"action": action} if action.strip() else {"terminal": True}
    for place, target in _pairs("--route", options["route"]):
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
    return _present(initial=options["initial"] or next(iter(states), None), states=states)


def _natural(options: dict[str, Any]) -> dict[str, Any]:
    return _present(tools=list(options["tool"] or ()))


_READERS = {
    "goal": _goal,
    "convergence": _convergence,
    "invariants": _invariants,
    "imperative": _imperative,
    "fsm": _fsm,
    "natural": _natural,
}
# By paradigm: required keys, each with its option.
_REQUIRED = {
    "goal": {"goal": "goal", "tools": "tool"},
    "convergence": {"check": "check", "toward": "toward", "using": "using"},
    "invariants": {"constraints": "constraint"},
    "imperative": {"steps": "step", "until": "until"},
    "fsm": {"states": "state"},
    "natural": {"description": "description"},
}


def _missing(data: dict[str, Any]) -> list[str]:
    """The required options that are missing."""
    return [flag for key, flag in _REQUIRED.get(str(data.get("paradigm")), {}).items() if key not in data]


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value not in ([], {})}


def _pairs(flag: str, texts: Any) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not (name and sign):
            raise UserError("bad-option", f"{flag} takes NAME=VALUE, not `{text[:60]}`")
        if any(other == name for other, _ in pairs):
            raise UserError("bad-option", f"{flag} {name}=… is given twice")
        pairs.append((name, value))
    return pairs
