"""`spec/ready.md`: its commands print the shown output; its sections are generated from `stdlib/ready/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spec.blocks import SPEC, Shell, commands, take, text_of

from llc.ir.nodes import Limits
from llc.runtime.authoring import drafts, ready_loops
from llc.runtime.authoring.ready_loops import Command, Parameter, ReadyLoop
from llc.runtime.project.dry_run import plan_of
from llc.stdlib import READY_LOOPS

CHAPTER = SPEC / "ready.md"
BLOCKS = take("ready.md", "console")
_BEGIN, _END = "<!-- loops -->\n", "<!-- end -->\n"


def test_the_commands_print_the_shown_output(tmp_path: Path) -> None:
    """Each console block, run in order in one folder, prints the shown output."""
    shell = Shell(tmp_path)
    for block in BLOCKS:
        for command, expected in commands(block):
            result = shell.run(f"{{ {command}; }} 2>&1")
            assert result.stdout.strip() == expected.strip(), command


def test_the_sections_are_generated_from_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: bool
) -> None:
    """Rewritten by `pytest --update tests/spec`."""
    monkeypatch.chdir(tmp_path)  # no file says which tools fit
    text = text_of("ready.md")
    head, _, rest = text.partition(_BEGIN)
    sections = "\n".join(section(name, ready_loops.load(name)) for name in READY_LOOPS)
    printed = f"{head}{_BEGIN}{sections}{_END}{rest.partition(_END)[2]}"
    if update:
        CHAPTER.write_text(printed, "utf-8")
        return
    assert text == printed, "to accept: pytest --update tests/spec"


def section(name: str, ready: ReadyLoop) -> str:
    """Section of the chapter about a ready loop."""
    samples = {key: parameter.sample for key, parameter in ready.parameters.items() if parameter.sample}
    draft = drafts.of_text(name, ready_loops.render(ready, name, ready_loops.choose(ready, samples)))
    assert draft.compiled is not None
    program = draft.compiled.program
    lines = [f"## {name}", "", ready.summary, "", ready.about.strip(), "", *outline(plan_of(program)), ""]
    lines += [f"**Needs.** {ready.needs}", "", f"**Limits.** {limits_text(program.meta.limits)}", ""]
    lines += ["| parameter | meaning | default |", "|---|---|---|"]
    lines += [
        f"| `{key}` | {parameter.doc} | {default(parameter)} |" for key, parameter in ready.parameters.items()
    ]
    if ready.tools:
        lines += ["", "| project with | values |", "|---|---|"]
        lines += [f"| {files(tool.files)} | {values(tool.set)} |" for tool in ready.tools]
    return "\n".join([*lines, "", f"**Adapt.** {ready.adapt.strip()}"]) + "\n"


def outline(plan: dict[str, Any]) -> list[str]:
    """The states as text, each with the kind of its action and its routes."""
    width = max(len(state["state"]) for state in plan["states"])
    lines = []
    for state in plan["states"]:
        kinds = [effect["kind"] for effect in state["performs"] if effect["kind"] in ("shell", "agent")]
        routes = [f"{verdict} -> {target}" for verdict, target in state["routes"].items()]
        if "terminal" in state:
            routes = [f"ends: {state['terminal']}"]
        lines.append(f"    {state['state']:{width}}  {(kinds or ['-'])[0]:5}  {', '.join(routes)}")
    return lines


def limits_text(limits: Limits) -> str:
    assert limits.timeout_ms is not None
    hours = f"{limits.timeout_ms / 3_600_000:g} hours"
    return f"{limits.budget_usd:g} USD of agent calls, {limits.max_iterations} iterations, {hours}."


def default(parameter: Parameter) -> str:
    if parameter.like:
        return f"as `check` of [{parameter.like}](#{parameter.like})"
    if parameter.sample:
        return f"required, such as {code(parameter.sample)}"
    return "by the project's files" if parameter.default is None else code(str(parameter.default))


def files(names: tuple[str, ...]) -> str:
    return ", ".join(map(code, names)) or "anything else"


def values(given: Any) -> str:
    parts = []
    for name, value in given.items():
        if isinstance(value, Command):
            codes = ", ".join(map(str, value.failure))
            parts.append(f"`{name}`: {code(value.run)} (failure: {codes})")
        else:
            parts.append(f"`{name}`: {code(value)}")
    return "<br>".join(parts)


def code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`"
