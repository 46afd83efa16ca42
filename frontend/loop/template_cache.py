"""The texts of a loop as templates, each parsed once: for the checks, and for lowering.

Must not be in here: which texts a loop has, what a template consists of (`templates`).
"""

from __future__ import annotations

from ..template.template import Template, parse
from .schema import Loop


def template_of(loop: Loop, state: str | None, kind: str, text: str) -> Template:
    """The template that a text of a state is, None standing for the loop itself."""
    key = (state, kind, text)
    found: Template | None = loop.parsed.get(key)
    if found is None:
        known = {"loop.name": loop.name}
        if state is not None:
            known["state.name"] = state
        found = parse(text, kind=kind, context=loop.context, known=known)
        loop.parsed[key] = found
    return found
