"""Text of `llc --version`."""

from __future__ import annotations

import sys

from ... import __version__
from ...ir.compile_options import DEFAULT_LLM_MODEL
from ..host import environment


def version_text(verbose: bool) -> str:
    """Version of llc. verbose: with the default model, the platform and the versions of the file formats."""
    if not verbose:
        return f"llc {__version__}\n"

    from ...vm.code import image
    from ...vm.machine import snapshot
    from ..journal import journal

    rows = {
        "llc": __version__,
        "default model": environment.environ.get("LLC_LLM_MODEL") or DEFAULT_LLM_MODEL,
        "Python": f"{environment.python_version()} ({sys.executable})",
        "platform": environment.platform(),
        "image format": image.VERSION,
        "snapshot format": snapshot.FORMAT,
        "journal format": journal.FORMAT,
    }
    width = max(map(len, rows))
    return "".join(f"{name.ljust(width)}  {value}\n" for name, value in rows.items())
