"""`llc doctor`: checks of the installation, and of the programs and keys that each loop needs."""

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
from .preflight import FAILURE, OK, WARNING, Check, agent_checks, output_of, program_checks

_MARKS = {OK: ("✓", "green"), WARNING: ("!", "yellow"), FAILURE: ("✗", "red")}
_VERSION = re.compile(r"\d+(?:\.\d+)+")
# Optional programs, with their use.
_OPTIONAL_PROGRAMS = {
    "bash": "shell actions; without it: sh",
    "git": "the record of changed files; without it: manifests",
}


def checks(targets: list[str]) -> dict[str, list[Check]]:
    """Checks by subject. With targets: of these loops; without: of the installation and of all loops."""
    groups = {} if targets else {"installation": list(_installation())}
    for target in targets or loop_files():
        groups[target] = list(_of_loop(target))
    return groups


def _installation() -> Iterator[Check]:
    runner = Runner()
    try:
        for program, use in _OPTIONAL_PROGRAMS.items():
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
    version = _VERSION.search(output_of([check.message, "--version"]) or "")
    if version is None or not agent.tested:
        return check
    if version[0] in agent.tested:
        return Check(check.subject, OK, f"{check.message} {version[0]}")
    return Check(check.subject, OK, f"{check.message} {version[0]}, tested with {', '.join(agent.tested)}")


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
    results = list(program_checks(lift(image, places=False)))
    yield from results or [Check("loop", OK, "needs nothing that could be missing")]


def has_failed(groups: dict[str, list[Check]]) -> bool:
    return any(check.status == FAILURE for group in groups.values() for check in group)


def as_json(groups: dict[str, list[Check]]) -> dict[str, Any]:
    results = {name: [check.to_json() for check in group] for name, group in groups.items()}
    return {"ok": not has_failed(groups), "folder": environment.getcwd(), "checks": results}


def as_text(groups: dict[str, list[Check]], screen: Screen) -> str:
    lines = []
    for name, group in groups.items():
        lines.append(screen.paint(printable(name), "bold"))
        for check in group:
            mark, style = _MARKS[check.status]
            mark = mark if screen.unicode else {OK: "ok", WARNING: "!", FAILURE: "x"}[check.status]
            lines.append(f"  {screen.paint(mark, style)} {printable(f'{check.subject}: {check.message}')}")
            if check.help and check.status != OK:
                lines.append(f"      {printable(check.help)}")
    return "\n".join(lines) + "\n"
