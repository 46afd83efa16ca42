"""HTML page of a report: one self-contained file with its data and scripts.

The content security policy of the page allows only its own scripts and styles, by their hashes, and no other
access. Data is never markup: JSON without `<`, or compressed JSON in base64, which the page decompresses on
demand.
"""

from __future__ import annotations

import base64
import html
import os.path
import re
import zlib
from collections.abc import Iterator
from typing import Any

from ...ir.records import frozen
from ..graph.picture import csp_hash
from ..host import files
from ..host.screen import printable
from ..journal.codec import strict_json

_ASSETS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "assets")
# In the order of their dependencies; all share one scope.
SCRIPTS = ("text.js", "run.js", "timeline.js", "details.js", "page.js")
# Approximate size in bytes of the values that are compressed and decompressed together.
_CHUNK_BYTES = 1 << 18
_SVG_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def asset(name: str, folder: str = _ASSETS) -> str:
    """The text of a file in `assets/`, or in another folder."""
    with files.open(os.path.join(folder, name), encoding="utf-8") as file:
        text: str = file.read()
    return text


@frozen
class Live:
    """Additional script of a page that a server updates, and the data for it."""

    script: str
    data: dict[str, Any]


def render(updates: list[dict[str, Any]], rows: list[Any] | None = None, live: Live | None = None) -> bytes:
    """The page of one or two runs.

    updates: the first result of `RunModel.update` of each run. rows: alignment of two runs, see `comparison`.
    live: for a page that may contact its own server; None for a file.
    """
    blocks: list[str] = []
    figures: list[str] = []
    runs = [_run(update, number, blocks, figures) for number, update in enumerate(updates)]
    head: dict[str, Any] = {"runs": runs, "rows": None}
    if rows is not None:
        blocks.append(_block("rows", strict_json(rows)))
        head["rows"] = "rows"
    style = asset("page.css")
    script = "\n".join(map(asset, SCRIPTS))
    if live is not None:
        head["live"] = live.data
        script += "\n" + live.script
    styles = [style, *(found for figure in figures for found in _SVG_STYLE.findall(figure))]
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {csp_hash(script)}",
            f"style-src {' '.join(dict.fromkeys(map(csp_hash, styles)))}",
            "base-uri 'none'",
            "form-action 'none'",
            *(("connect-src 'self'",) if live is not None else ()),
        )
    )
    title = " and ".join(f"{update['run']['id']} · {update['run']['status']}" for update in updates)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{html.escape(printable(title))}</title>",
        f"<style>{style}</style></head><body>",
        asset("page.html").replace("<!-- figures -->", "\n".join(figures)),
        f'<script type="application/json" id="head">{_escaped(strict_json(head))}</script>',
        *blocks,
        f"<script>{script}</script>",
        "</body></html>",
    ]
    return "\n".join(parts).encode("utf-8", "replace")


def _run(update: dict[str, Any], number: int, blocks: list[str], figures: list[str]) -> dict[str, Any]:
    """The data of a run for the head of the page; the other data is added to `blocks` and `figures`."""
    head = {name: value for name, value in update.items() if name not in ("steps", "values", "program")}
    program = dict(update["program"])
    svg = program.pop("svg")
    if svg and (number == 0 or svg not in figures[0]):
        figures.append(f'<div class="figure" data-run="{number}">{svg}</div>')
    head["program"] = program
    head["steps"] = f"steps-{number}"
    blocks.append(_block(head["steps"], strict_json(update["steps"])))
    head["chunks"] = []
    for first, data in _chunks(update["values"]):
        name = f"values-{number}-{first}"
        head["chunks"].append([first, name])
        blocks.append(_block(name, data))
    return head


def _chunks(values: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """Chunks of about `_CHUNK_BYTES` bytes: index of the first value, and the values, one on each line."""
    first, size = 0, 0
    for number, value in enumerate(values):
        size += len(value)
        if size >= _CHUNK_BYTES or number == len(values) - 1:
            yield first, b"\n".join(values[first : number + 1])
            first, size = number + 1, 0


def _block(name: str, data: bytes) -> str:
    text = base64.b64encode(zlib.compress(data, 9)).decode("ascii")
    return f'<script type="text/plain" id="{name}">{text}</script>'


def _escaped(data: bytes) -> str:
    """JSON without `<`, so that it cannot end the element that contains it."""
    return data.decode("utf-8", "surrogatepass").replace("<", "\\u003c")
