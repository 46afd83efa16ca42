"""The subcommand `disasm`."""

from __future__ import annotations

from ...host.errors import EXIT_OK
from ...project import emit_products
from ...project.options import Values
from .. import parameters as shared
from ..output import warn, write_data

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass


def disasm(loop: shared.Loop, json: shared.Json = False) -> int:
    """Show the bytecode of a loop or an image."""

    write_data(emit_products.disassembly(Values(loop), json, warn))
    return EXIT_OK
