"""Dynamic linking: adds a loop with a computed name to the program of a run.

The source of the run is compiled again together with the new loop, and the run continues with that program.
The run's folder keeps the program and its journal names it, so resume and replay use the same program. Must
not contain: the resolution of the name (`frontend.link`).
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

# Maximum number of loops that one run links; stops a program that generates names endlessly.
MAX_LINKS = 200


def link(
    run: RunFolder, machine: Machine, args: dict[str, Any], state: str | None
) -> tuple[Machine, ProgramChanged] | str:
    """Migrate the machine to a program with the loop of a `link` effect; return an error message on failure.

    args: arguments of the effect. state: current state of the run. Raises JournalError.
    """
    from ...ir.diagnostics import CompileError
    from ...vm.machine.migration import MigrationError, migrate

    image = machine.image
    new: tuple[str, str, str] = (args["file"], args["state"], args["name"])
    known = run_programs.links(run.journal)
    if len(known) >= MAX_LINKS:
        return f"the run has added {MAX_LINKS} loops to its program, and adds no more"
    start, edited = run.start(), program_diff.edited(image)
    try:
        if (
            edited is not None
            and run_programs.compile_source(start, run.outputs, known).program_hash != image.program_hash
        ):
            return f"`{edited}` was edited since the run began, so no loop can be added to its program"
        program = run_programs.compile_source(start, run.outputs, (*known, new))
    except CompileError as error:
        first = next(diagnostic for diagnostic in error.diagnostics if diagnostic.is_error)
        place = f"{first.span.path}:{first.span.line}: " if first.span is not None else ""
        return masked(f"{place}{first.message}")
    except UserError as error:
        return masked(error.message)
    before = {code.name: code.parameters for code in image.functions}
    after = {code.name: code.parameters for code in program.functions}
    if any(after.get(name) != parameters for name, parameters in before.items()):
        return f"loop `{args['name'][:200]}` would change functions that the program of this run already has"
    try:
        machine, _ = migrate(machine, program)
    except MigrationError as error:
        return f"the run cannot continue with loop `{args['name'][:200]}`: {error}"
    program_diff.keep(run, program)
    event = ProgramChanged(
        program_hash=program.program_hash, image=run.image_name, state=state, link=list(new)
    )
    return machine, event
