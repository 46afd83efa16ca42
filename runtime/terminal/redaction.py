"""Redaction of secrets in the progress of a run."""

from __future__ import annotations

from ..execution.observer import Display, ForwardingDisplay
from ..host import secrets
from ..host.secrets import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class MaskedDisplay(ForwardingDisplay):
    """Observer that forwards to `inner` with secrets masked."""

    def __init__(self, inner: Display) -> None:
        super().__init__(inner)
        self._streams: dict[str, Stream] = {}

    def effect_start(self, kind: str, args: dict[str, Any]) -> None:
        self._streams = {}
        self._inner.effect_start(kind, secrets.known.mask_all(args))

    def output(self, stream: str, text: str) -> None:
        known = self._streams.get(stream)
        if known is None:
            known = self._streams[stream] = Stream(is_text=True)
        shown = known.feed(text)
        if shown:
            self._inner.output(stream, shown)

    def _flush(self) -> None:
        """Forward the text that was held back for the detection of secrets, at the end of an action."""
        for name, stream in self._streams.items():
            rest = stream.finish()
            if rest:
                self._inner.output(name, rest)
        self._streams = {}

    def effect_end(self, kind: str, result: dict[str, Any]) -> None:
        self._flush()
        self._inner.effect_end(kind, secrets.known.mask_all(result))

    def effect_cut(self) -> None:
        self._flush()
        self._inner.effect_cut()

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        self._inner.note(kind, secrets.known.mask_all(fields))

    def notice(self, text: str) -> None:
        self._inner.notice(secrets.masked(text))

    def concurrent(self, seq: int) -> Display:
        return MaskedDisplay(self._inner.concurrent(seq))

    def prompt(self, text: str) -> None:
        self._inner.prompt(secrets.masked(text))
