"""Diagnostics as data, and their renderers for people and programs.

Ids are listed in `spec/diagnostics.md`. A message is one short lower-case sentence. A label describes the
marked place, a related label another place ("first defined here"), and a help states what the user can do.
"""

from __future__ import annotations

from .python_internals import late_pattern
from .records import frozen
from .spans import Source, Span

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, NewType

    from .diagnostic_ids import DiagnosticId as DiagnosticId

    FaultKind = NewType("FaultKind", str)
else:
    DiagnosticId = FaultKind = str

# Longer source lines are shown as a window around the marked place, so the size of a diagnostic is limited.
MAX_LINE = 140
MAX_MESSAGE = 1000
# Control characters, and lone surrogates, which no output stream takes.
_UNFIT = late_pattern("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@frozen
class Diagnostic:
    """A finding about a program; an `error` refuses it, a `warning` does not.

    id: or the kind of a fault, which is shown as a diagnostic; a program may raise kinds of its own.
    related: further places that explain the finding, each with its label.
    """

    id: DiagnosticId | FaultKind
    message: str
    span: Span | None = None
    label: str = ""
    help: str | None = None
    severity: str = "error"
    related: tuple[tuple[Span, str], ...] = ()

    @property
    def is_error(self) -> bool:
        return self.severity == "error"


def labelled(span: Span | None, label: str) -> tuple[tuple[Span, str], ...]:
    """A related label for a place, if that is known."""
    return () if span is None else ((span, label),)


class CompileError(Exception):
    """A program was refused; has all diagnostics found, and the sources to show them in."""

    def __init__(self, diagnostics: Iterable[Diagnostic], sources: Iterable[Source] = ()) -> None:
        self.diagnostics = tuple(diagnostics)
        self.sources = tuple(sources)
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        return render_all(self.diagnostics, self.sources)


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate a person most likely meant by `name`, or None if none is near.

    Every unknown name of every kind goes through here.
    """
    import difflib

    names = sorted({candidate for candidate in candidates if candidate})
    folded = {candidate.lower(): candidate for candidate in reversed(names)}
    name = _plain(name)
    if len(name) < 5:
        # A few letters in common say nothing of a short name: one change at most, or its first letters.
        folded = {known: as_is for known, as_is in folded.items() if _is_near_short(name, known)}
    match = difflib.get_close_matches(name, folded, n=1, cutoff=0.6)
    return folded[match[0]] if match else None


# Letters that look like Latin ones, in Cyrillic, Greek and full width; and characters without width.
_ALIKE = str.maketrans(
    "авеіјкмнорсѕтухԁһαεικνορτυχ" + "".join(map(chr, range(0xFF41, 0xFF5B))),
    "abeijkmhopcstyxdhaeiknoptux" + "abcdefghijklmnopqrstuvwxyz",
    "\u200b\u200c\u200d\u2060\ufeff",
)


def _plain(name: str) -> str:
    """A name in lower-case letters, with Latin ones for those that look the same."""
    return name[:100].lower().translate(_ALIKE)


def _is_near_short(name: str, known: str) -> bool:
    """Whether a short name begins another, is a word of it, or differs by one letter or exchange."""
    if name == known or (len(name) > 2 and (known.startswith(name) or name in known.split("-"))):
        return True
    start = 0
    while start < min(len(name), len(known)) and name[start] == known[start]:
        start += 1
    end = 0
    while end < min(len(name), len(known)) - start and name[-1 - end] == known[-1 - end]:
        end += 1
    left, right = name[start : len(name) - end], known[start : len(known) - end]
    if len(name) < 3:
        return len(name) == 2 and len(left) + len(right) == 1
    return max(len(left), len(right)) < 2 or (len(left) == 2 and left == right[::-1])


def suggest(name: str, candidates: Iterable[str], what: str = "known names") -> str | None:
    """The help line for an unknown name: the nearest candidate, else a bounded list of all."""
    candidates = list(candidates)
    found = nearest(name, candidates)
    odd = next((letter for letter in name[:100].lower() if letter != _plain(letter)), None)
    if found is not None and odd is not None:
        import unicodedata

        return f"did you mean `{found}`? `{odd}` is {unicodedata.name(odd, 'another letter').lower()}"
    if found is not None:
        return f"did you mean `{found}`?"
    if not candidates:
        return None
    shown = ", ".join(f"`{candidate}`" for candidate in candidates[:12])
    more = f" and {len(candidates) - 12} more" if len(candidates) > 12 else ""
    return f"{what}: {shown}{more}"


def count_words(least: int, most: int | None, what: str) -> str:
    """`2 operands`, `1 to 3 operands`, `at least 1 operand`."""
    if most is None:
        return f"at least {least} {what}{'' if least == 1 else 's'}"
    if least == most:
        return f"{least or 'no'} {what}{'' if least == 1 else 's'}"
    return f"{least} to {most} {what}s"


# --- rendering for people ---------------------------------------------------------------------

_COLOR = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "frame": "\x1b[1;34m", "bold": "\x1b[1m"}


def _paint(text: str, style: str, color: bool) -> str:
    return f"{_COLOR[style]}{text}\x1b[0m" if color and text else text


def clean(text: str, limit: int = MAX_MESSAGE) -> str:
    """Text of unknown origin made fit for a terminal: bounded, without what one obeys or chokes on."""
    if len(text) > limit:
        text = text[: limit // 2] + " … " + text[-limit // 2 :]
    return _UNFIT.sub("�", text)


def _columns(text: str) -> int:
    """How many terminal columns a text takes."""
    import unicodedata  # start-up time: only diagnostics measure texts

    width = 0
    for ch in text:
        if unicodedata.combining(ch):
            continue
        width += 2 if unicodedata.east_asian_width(ch) in "WF" else 1
    return width


def _excerpt(line: str, start: int, end: int) -> tuple[str, int, int]:
    """`line` cut to a window around [start, end), with the bounds moved along."""
    line = clean(line.replace("\t", " "), limit=1 << 30)
    end = min(max(end, start + 1), max(len(line), start) + 1)
    if len(line) <= MAX_LINE:
        return line, start, end
    left = max(0, min(start - 30, len(line) - MAX_LINE))
    right = min(len(line), left + MAX_LINE)
    head = "…" if left else ""
    text = head + line[left:right] + ("…" if right < len(line) else "")
    shift = len(head) - left
    return text, start + shift, min(end, right) + shift


def render(diagnostic: Diagnostic, sources: Mapping[str, Source] | None = None, color: bool = False) -> str:
    """One diagnostic as text with the source line and a caret, without a final newline."""
    head = _paint(f"{diagnostic.severity}[{diagnostic.id}]", diagnostic.severity, color)
    out = [head + _paint(f": {clean(diagnostic.message)}", "bold", color)]
    places = [(span, label, ":::", "-", "frame") for span, label in diagnostic.related]
    if diagnostic.span is not None:
        places.insert(0, (diagnostic.span, diagnostic.label, "-->", "^", diagnostic.severity))
    width = max((len(str(span.line)) for span, *_ in places), default=0)
    gutter = " " * width
    bar = _paint("|", "frame", color)
    for span, label, arrow, mark, style in places:
        out.append(f"{gutter}{_paint(f' {arrow}', 'frame', color)} {clean(str(span))}")
        source = (sources or {}).get(span.path)
        lines = source.text.split("\n") if source is not None and source.text is not None else []
        if 0 < span.line <= len(lines):
            line = lines[span.line - 1].rstrip("\r")
            end = span.end_column if span.end_line == span.line else len(line) + 1
            text, start, stop = _excerpt(line, span.column - 1, end - 1)
            marks = mark * max(1, _columns(text[start:stop]))
            caret = " " * _columns(text[:start]) + _paint(marks, style, color)
            out.append(f"{gutter} {bar}")
            out.append(f"{_paint(f'{span.line:>{width}}', 'frame', color)} {bar} {text}")
            out.append(f"{gutter} {bar} {caret}{f' {label}' if label else ''}")
    if diagnostic.help:
        out.append(f"{gutter} {_paint('=', 'frame', color)} help: {clean(diagnostic.help)}")
    return "\n".join(out)


def render_all(diagnostics: Iterable[Diagnostic], sources: Iterable[Source] = (), color: bool = False) -> str:
    """Diagnostics in the order of their places, a blank line between two."""
    by_path = {source.path: source for source in sources}
    return "\n\n".join(render(diagnostic, by_path, color) for diagnostic in in_order(diagnostics))


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Sorted by file, line and column; those without a place first."""

    def place(diagnostic: Diagnostic) -> tuple[str, int, int]:
        span = diagnostic.span
        return ("", 0, 0) if span is None else (span.path, span.line, span.column)

    return sorted(diagnostics, key=place)


# --- rendering for programs -------------------------------------------------------------------


def to_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """The diagnostic as a JSON object; a place is {file, line, column, end_line, end_column}.

    `related` has further places with their labels; it is absent where there are none.
    """
    related = [{**_place(span), "label": label} for span, label in diagnostic.related]
    return {
        "severity": diagnostic.severity,
        "id": diagnostic.id,
        "message": diagnostic.message,
        **_place(diagnostic.span),
        "label": diagnostic.label or None,
        "help": diagnostic.help,
        **({"related": related} if related else {}),
    }


def _place(span: Span | None) -> dict[str, Any]:
    return {
        "file": span.path if span else None,
        "line": span.line if span else None,
        "column": span.column if span else None,
        "end_line": span.end_line if span else None,
        "end_column": span.end_column if span else None,
    }
