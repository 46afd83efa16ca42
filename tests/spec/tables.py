"""Tables in the chapters of `spec/` that are generated from declarations in the code.

A table is between `<!-- table: NAME -->` and `<!-- end -->`; `pytest --update` rewrites it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from spec.blocks import SPEC

from llc.frontend.source.schema import MISSING, Spec, Type, fields_of

_MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def compare(chapter: str, lines_of: Callable[[str], Iterable[str]], update: bool) -> None:
    """Compare the tables of a chapter with the generated ones, or with `update` rewrite them."""
    path = SPEC / chapter
    text = path.read_text("utf-8")
    assert _MARKED.search(text)
    printed = _MARKED.sub(
        lambda found: found[1] + "".join(f"{line}\n" for line in lines_of(found[2])) + found[3], text
    )
    if update:
        path.write_text(printed, "utf-8")
        return
    assert printed == text, "to accept: pytest --update with the path of this test"


# --- keys of a file ---------------------------------------------------------------------------


def keys(cls: type[Spec], without: type[Spec] | None = None) -> list[str]:
    """Markdown table of the keys of a block, without the keys of `without`."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    left_out = fields_of(without) if without is not None else {}
    for key, field in fields_of(cls).items():
        if key not in left_out:
            default = "*required*" if field.required else _default(cls, key)
            rows.append(f"| `{key}` | {_words(field.type)} | {default} | {field.doc} |")
    return rows


def _default(cls: type[Spec], key: str) -> str:
    default = fields_of(cls)[key].default
    if default is None or default is MISSING:
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, tuple):
        return f"`[{', '.join(default)}]`"
    return f"`{default}`"


def _words(type: Type) -> str:
    match type.kind:
        case "integer" | "number":
            return ("whole number" if type.kind == "integer" else "number") + _bound_words(type)
        case "measure":
            return "number or template"
        case "target":
            return "state"
        case "boolean":
            return "true or false"
        case "choice":
            return ", ".join(f"`{choice}`" for choice in type.choices)
        case "json":
            return "any value"
        case "either":
            return (
                " or ".join(_words(option) for option in type.options)
                if not type.expected
                else _bare(type.expected)
            )
        case "list":
            assert type.item is not None
            return f"list of {_plural(type.item)}"
        case "map":
            assert type.item is not None
            return f"mapping of {_plural(type.item)}"
        case "spec" | "tagged":
            return "mapping"
        case "scalar":
            return "text"
        case "node":
            return "any value"
    return _bare(type.expected) or type.kind


def _bare(words: str) -> str:
    """Remove the articles from a text."""
    return re.sub(r"\ban? ", "", words)


def _plural(type: Type) -> str:
    if type.kind in ("integer", "number"):
        return ("whole numbers" if type.kind == "integer" else "numbers") + _bound_words(type)
    return {"spec": "mappings", "json": "any values"}.get(type.kind, _words(type) + "s")


def _bound_words(type: Type) -> str:
    if type.above is not None:
        return f" > {type.above:g}"
    if type.least is not None and type.most is not None and type.most <= 1000:
        return f", {type.least:g} to {type.most:g}"
    return f" ≥ {type.least:g}" if type.least is not None else ""
