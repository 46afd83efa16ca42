"""The subcommand `disasm`."""

from __future__ import annotations

from ...host.errors import EXIT_OK
from ...project import emit_products
from ...project.options import values
from ..output import warn, write_data

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from .. import typer_parameters as shared
    from ..typer_parameters import Text, option


def disasm(
    loop: shared.Loop,
    function: Annotated[Text, option("--function", "NAME", "Show only this function.")] = None,
    arguments: shared.Arguments = None,
    declare: shared.Declare = None,
    json: shared.Json = False,
) -> int:
    """Show the bytecode of a program."""

    given = values(loop, {"arguments": arguments, "declare": declare})
    write_data(emit_products.disassembly(given, function, json, warn))
    return EXIT_OK
