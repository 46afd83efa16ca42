"""The parameters that several subcommands share, for their annotations.

Only Typer evaluates annotations, so their declarations (`typer_parameters`) are imported when it does.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .typer_parameters import *  # noqa: F403
else:

    def __getattr__(name):
        from . import typer_parameters

        return getattr(typer_parameters, name)
