"""`llc doctor`: what of llc's surroundings works here, and what each loop would miss."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...ir.diagnostics import CompileError
from ...ir.regex import load_re2
from ...vm.code.lift import lift
from ..effects.process import Runner
from ..host import environment
from ..host.errors import UserError
from ..host.paths import ROOT
from ..host.screen import Screen, printable
from ..project import agents, configuration
from ..project.load import load_program
from ..project.options import Values
from ..runs.loop_names import loop_files, resolve_loop
from .preflight import FAILURE, OK, WARNING, Check, agent_checks, answer_of, checks_of

_MARKS = {OK: ("✓", "green"), WARNING: ("!", "yellow"), FAILURE: ("✗", "red")}
_VERSION = re.compile(r"\d+(?:\.\d+)+")
# Programs that llc uses where they are: what for.
_PROGRAMS = {
    "bash": "shell actions; without it: sh",
    "git": "the record of changed files; without it: manifests",
}


def checks(targets: list[str]) -> dict[str, list[Check]]:
    """The checks of the installation and of these loops, by what they are about; by default of all loops."""
    found = {} if targets else {"installation": list(_installation())}
    for target in targets or loop_files():
        found[target] = list(_of_loop(target))
    return found


def _installation() -> Iterator[Check]:
    runner = Runner()
    try:
        for program, use in _PROGRAMS.items():
            path = runner.find(program)
            yield Check(program, OK, path) if path else Check(program, WARNING, "is not on PATH", use)
        yield _regular_expressions()
        yield _configuration()
        installed = [name for name in agents.known_names() if runner.find(str(agents.known(name).argv[0]))]
        for name in installed:
            for check in agent_checks({"agent": name}, runner):
                yield _with_version(check, name) if check.status == OK else check
        if not installed:
            names = ", ".join(agents.known_names())
            yield Check(
                "agents", WARNING, f"none of {names} is on PATH", agents.known(agents.DEFAULT).install
            )
    finally:
        runner.close()


def _with_version(check: Check, name: str) -> Check:
    agent = agents.known(name)
    found = _VERSION.search(answer_of([check.message, "--version"]) or "")
    if found is None or not agent.tested:
        return check
    if found[0] in agent.tested:
        return Check(check.subject, OK, f"{check.message} {found[0]}")
    return Check(check.subject, OK, f"{check.message} {found[0]}, tested with {', '.join(agent.tested)}")


def _regular_expressions() -> Check:
    if load_re2() is not None:
        return Check("RE2", OK, "is installed")
    message = "google-re2 is not installed: patterns are matched in a helper process, slowly and with limits"
    return Check(
        "RE2", WARNING, message, "pip install google-re2; it is built from source where there is no wheel"
    )


def _configuration() -> Check:
    try:
        configuration.load_usable(ROOT)
    except configuration.Unusable as error:
        return Check("configuration", FAILURE, str(error), "llc validate")
    return Check("configuration", OK, "can be read")


def _of_loop(target: str) -> Iterator[Check]:
    try:
        image = load_program(resolve_loop(target), Values(target), lambda text: None)
    except (CompileError, UserError):
        yield Check("loop", FAILURE, "is not valid", f"llc validate {target}")
        return
    found = list(checks_of(lift(image, places=False)))
    yield from found or [Check("loop", OK, "needs nothing that could be missing")]


def has_failed(found: dict[str, list[Check]]) -> bool:
    return any(check.status == FAILURE for group in found.values() for check in group)


def as_json(found: dict[str, list[Check]]) -> dict[str, Any]:
    checked = {name: [check.to_json() for check in group] for name, group in found.items()}
    return {"ok": not has_failed(found), "folder": environment.getcwd(), "checks": checked}


def as_text(found: dict[str, list[Check]], screen: Screen) -> str:
    lines = []
    for name, group in found.items():
        lines.append(screen.paint(printable(name), "bold"))
        for check in group:
            mark, style = _MARKS[check.status]
            mark = mark if screen.unicode else {OK: "ok", WARNING: "!", FAILURE: "x"}[check.status]
            lines.append(f"  {screen.paint(mark, style)} {printable(f'{check.subject}: {check.message}')}")
            if check.help and check.status != OK:
                lines.append(f"      {printable(check.help)}")
    return "\n".join(lines) + "\n"
