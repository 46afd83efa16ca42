"""Linking of a loop with a computed name into the program of a run.

The source of the run is compiled again, with one loop more. The run continues with that program, which its
folder keeps and its journal names, so that resume and replay take the same. Must not contain: what the name
means (`frontend.link`).
"""

from __future__ import annotations

from ...vm.machine.machine import Machine
from ..host.errors import UserError
from ..host.secrets import masked
from ..journal.events import ProgramChanged
from ..journal.run_folder import RunFolder
from . import program_diff, run_programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Loops that one run links at most: a program that makes names up is stopped.
MOST_LINKS = 200


def link(
    run: RunFolder, machine: Machine, args: dict[str, Any], state: str | None
) -> tuple[Machine, ProgramChanged] | str:
    """The machine in a program with the loop that `args` of a `link` effect name; or why there is none.

    state: in which the run is. Raises JournalError.
    """
    from ...ir.diagnostics import CompileError
    from ...vm.machine.migration import RenewalError, renew

    image = machine.image
    new: tuple[str, str, str] = (args["file"], args["state"], args["name"])
    known = run_programs.links(run.journal)
    if len(known) >= MOST_LINKS:
        return f"the run has added {MOST_LINKS} loops to its program, and adds no more"
    start, edited = run.start(), program_diff.edited(image)
    try:
        if (
            edited is not None
            and run_programs.source_now(start, run.outputs, known).program_hash != image.program_hash
        ):
            return f"`{edited}` was edited since the run began, so that no loop can be added to its program"
        program = run_programs.source_now(start, run.outputs, (*known, new))
    except CompileError as error:
        found = next(one for one in error.diagnostics if one.is_error)
        place = f"{found.span.path}:{found.span.line}: " if found.span is not None else ""
        return masked(f"{place}{found.message}")
    except UserError as error:
        return masked(error.message)
    before = {code.name: code.parameters for code in image.functions}
    after = {code.name: code.parameters for code in program.functions}
    if any(after.get(name) != parameters for name, parameters in before.items()):
        return f"loop `{args['name'][:200]}` has no place in the program of this run"
    try:
        machine, _ = renew(machine, program)
    except RenewalError as error:
        return f"the run cannot continue with loop `{args['name'][:200]}`: {error}"
    program_diff.keep(run, program)
    event = ProgramChanged(
        program_hash=program.program_hash, image=run.image_name, state=state, link=list(new)
    )
    return machine, event
