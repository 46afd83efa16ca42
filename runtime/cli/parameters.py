"""Parameters shared by several subcommands, for annotations.

Only Typer evaluates these annotations. The module therefore imports the declarations (`typer_parameters`) on
first use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .typer_parameters import *  # noqa: F403
else:

    def __getattr__(name):
        from . import typer_parameters

        return getattr(typer_parameters, name)
