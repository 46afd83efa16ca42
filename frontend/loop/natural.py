"""`paradigm: natural`: a description in words whose loop a model wrote once, pinned in a lock file.

Owns the lock file: the key of a description, the loop of a pin, the writing of pins. The compiler never
calls a model: a description without a pin is an error whose help names the command that pins it
(`runtime/authoring/pins.py` calls the model). `spec/create.md` has the file's format.
"""

from __future__ import annotations

import json
from posixpath import dirname, join
from typing import Any

import attrs

from ...ir.diagnostics import CompileError, Diagnostic
from ...ir.python_internals import sha256
from ...ir.records import frozen
from ...ir.spans import Source, Span
from ..source.document import Document, Mapping, Node, Scalar
from ..source.files import path_exists, read_source
from ..source.schema import fields_of
from ..source.yaml_tree import read_document
from ..source.yaml_writer import entry
from .paradigms import LoopSpec, NaturalSpec, WrittenSpec, to_fsm
from .reader import read_tree
from .schema import Loop, LoopSettings

LOCK = "natural.lock"
VERSION = 1
_HEADER = (
    "# Loops that a model generated for `paradigm: natural` in this folder; written by `llc create --pin`.\n"
)
_NOT_SETTINGS = ("name", "description", "tools")


@frozen
class Pin:
    """A loop that a model wrote. key: see `key_of`. loop: name of the file with the description. yaml:
    the loop.
    """

    key: str
    loop: str
    model: str
    yaml: str


def key_of(spec: NaturalSpec) -> str:
    """The key of a pin: a digest of the words of the description and the tools, independent of line
    breaks.
    """
    words = [" ".join(spec.description.split()), list(spec.tools or ())]
    digest = sha256(json.dumps(words, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return f"sha256-{digest.hexdigest()}"


def lock_path(path: str) -> str | None:
    """The lock file for the file of a loop; None for a text without a file."""
    return None if path.startswith("<") else join(dirname(path), LOCK)


def as_states(spec: LoopSpec, document: Document) -> tuple[Loop | None, Document]:
    """Convert a loop of any paradigm to states; also returns the document that knows its positions. None
    after an error.
    """
    if isinstance(spec, NaturalSpec):
        return pinned_loop(spec, document)
    return to_fsm(spec), document


def pinned_loop(spec: NaturalSpec, document: Document) -> tuple[Loop | None, Document]:
    """The pinned loop of a description, and the document that knows its positions.

    None if the description is not pinned or the pin is invalid; the reason is reported to the document.
    """
    lock = lock_path(document.source.path)
    try:
        found = _read(lock) if lock is not None and path_exists(lock) else None
    except CompileError as error:
        for diagnostic in error.diagnostics:
            document.report(diagnostic)
        return None, PinnedDocument(document, document, error.sources[0]) if error.sources else document
    node = found.pins.get(key_of(spec)) if found is not None else None
    if found is None or node is None:
        document.report(_not_pinned(spec, document.source.path))
        return None, document
    pinned, inner = _spec_of(found, node)
    joined = PinnedDocument(document, inner, found.document.source)
    if pinned is None or any(diagnostic.is_error for diagnostic in inner.diagnostics):
        for diagnostic in inner.diagnostics:
            document.report(diagnostic)
        if inner.source.path != found.document.source.path:
            joined = PinnedDocument(document, inner, found.document.source, inner.source)
        return None, joined
    return to_fsm(_with_author_settings(pinned, spec)).evolve(paradigm="natural"), joined


class PinnedDocument(Document):
    """A document combined with a pinned document: the diagnostics and sources of both."""

    def __init__(self, outer: Document, inner: Document, *sources: Source) -> None:
        super().__init__(outer.source)
        self.root = outer.root
        self.diagnostics = outer.diagnostics
        self._inner = inner
        self._sources = sources

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.source, *self._sources)

    def within(self, span: Span | None, text: str, start: int, end: int) -> Span | None:
        if span is not None and span.path == self._inner.source.path:
            return self._inner.within(span, text, start, end)
        return super().within(span, text, start, end)


def _not_pinned(spec: NaturalSpec, path: str) -> Diagnostic:
    message = "this description has no pinned loop"
    help = f"llc create --pin {path} asks a model for the loop and keeps it in {lock_path(path) or LOCK}"
    if path.startswith("<"):
        help = "write it to a file; its pin is kept in the same folder"
    return Diagnostic("not-pinned", message, spec.span_of("description"), "", help)


def _with_author_settings(pinned: WrittenSpec, spec: NaturalSpec) -> WrittenSpec:
    """The pinned loop with the author's own settings applied."""
    names = [
        name for name in fields_of(LoopSettings) if name not in _NOT_SETTINGS and f"key:{name}" in spec.spans
    ]
    changes: dict[str, Any] = {name: getattr(spec, name) for name in names}
    spans = dict(pinned.spans)
    for name in [*names, "description"]:
        prefixes = (f"{name}.", f"{name}[", f"key:{name}.")
        kept = [key for key in spec.spans if key in (name, f"key:{name}") or key.startswith(prefixes)]
        spans.update((key, spec.spans[key]) for key in kept)
    if spec.name is not None:
        changes["name"] = spec.name
        spans["name"] = spec.spans["name"]
    return pinned.evolve(description=spec.description, spans=spans, **changes)


# --- the file ---------------------------------------------------------------------------------


@frozen
class _Lock:
    document: Document
    pins: dict[str, Mapping]


def _read(path: str) -> _Lock:
    """Read a lock file. Raises CompileError if it is invalid."""
    source = read_source(path)
    document = read_document(source)
    root = document.root
    if root is None or document.diagnostics:
        raise CompileError(document.diagnostics or [_damaged_lock(document, None, "it is empty")], [source])
    if not isinstance(root, Mapping) or _scalar(root, "version") != VERSION:
        raise CompileError(
            [
                _damaged_lock(
                    document, root, f"it has no `version: {VERSION}`; a newer llc may have written it"
                )
            ],
            [source],
        )
    pins = root.entries.get("pins")
    entries = {}
    if pins is not None:
        if not isinstance(pins[1], Mapping):
            raise CompileError([_damaged_lock(document, pins[1], "`pins` is not a mapping")], [source])
        entries = pins[1].entries
    found = {}
    for key, (_, node) in entries.items():
        if not isinstance(node, Mapping) or not isinstance(_scalar(node, "yaml"), str):
            raise CompileError([_damaged_lock(document, node, "a pin has no text `yaml`")], [source])
        found[key] = node
    return _Lock(document, found)


def _scalar(node: Mapping, key: str) -> Any:
    given = node.entries.get(key)
    return given[1].value if given is not None and isinstance(given[1], Scalar) else None


def _damaged_lock(document: Document, node: Node | None, why: str) -> Diagnostic:
    span = document.span(node) if node is not None else None
    help = "remove the file; llc create --pin writes it again"
    message = f"{document.source.path} is damaged: {why}"
    return Diagnostic("damaged-lock", message, span, "", help)


def _spec_of(lock: _Lock, node: Mapping) -> tuple[WrittenSpec | None, Document]:
    """The loop in a pin; its positions are those in the lock file."""
    text = node.entries["yaml"][1]
    source = lock.document.source
    span = lock.document.span(text)
    lines = (source.text or "").split("\n")
    first = lines[span.line - 1][span.column - 1 :].strip()
    if first in ("|", "|-", "|+"):
        # Blank all lines outside the block. The indentation of the whole document does not matter in YAML.
        kept = (line if span.line < number <= span.end_line else "" for number, line in enumerate(lines, 1))
        source = attrs.evolve(source, text="\n".join(kept))
    else:
        assert isinstance(text, Scalar)
        source = Source(f"<{source.path}>", source.sha256, str(text.value))
    inner = read_document(source)
    spec = read_tree(inner)
    if isinstance(spec, NaturalSpec):
        inner.report(Diagnostic("damaged-lock", "the pinned loop has `paradigm: natural` itself", spec.span))
        return None, inner
    return spec, inner


def pins_in(path: str) -> list[Pin]:
    """The pins of a lock file in its order; empty if there is no file. Raises CompileError."""
    if not path_exists(path):
        return []
    return [
        Pin(key, str(_scalar(node, "loop") or ""), str(_scalar(node, "model") or ""), _scalar(node, "yaml"))
        for key, node in _read(path).pins.items()
    ]


def print_lock(pins: list[Pin]) -> str:
    """The text of a lock file."""
    lines = entry("version", VERSION, 0)
    entries = {pin.key: {"loop": pin.loop, "model": pin.model, "yaml": pin.yaml} for pin in pins}
    return _HEADER + "\n".join([*lines, *entry("pins", entries, 0)]) + "\n"
