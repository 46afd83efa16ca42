"""Live tail of a run: the latest output of its actions, for `attach` and `status` in other terminals.

`<name>.live` in the run's folder contains the end of the output of each running action. It is written at the
ticks of a wait, so that an action shorter than a tick costs nothing, and removed when no action runs. The run
does not depend on it.
"""

from __future__ import annotations

from ...ir import light_json
from ...ir.python_internals import suppress
from ..execution.observer import Display, ForwardingDisplay
from ..host import files
from ..host.paths import open_regular
from ..journal.journal import JournalError, write_file
from ..journal.outcome import Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Characters of an action's output that are kept; up to twice this number between two ticks.
KEPT = 16 * 1024
_MAX_FILE_BYTES = 16 << 20


class Tail:
    """The end of one action's output.

    seq: the effect's number; None if it is the only running effect. parts: (stream, text) in order. skipped:
    the number of dropped characters of each stream before `parts`.
    """

    def __init__(self, seq: int | None, kind: str) -> None:
        self.seq = seq
        self.kind = kind
        self.parts: list[tuple[str, str]] = []
        self.skipped = {"output": 0, "stderr": 0}
        self.size = 0

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.parts)

    def add(self, stream: str, text: str) -> None:
        self.parts.append((stream, text))
        self.size += len(text)
        if self.size > 2 * KEPT:
            self.trim()

    def trim(self) -> None:
        parts = self.parts
        done = 0
        while self.size > KEPT:
            stream, text = parts[done]
            cut = min(len(text), self.size - KEPT)
            self.size -= cut
            self.skipped[stream] = self.skipped.get(stream, 0) + cut
            if cut == len(text):
                done += 1
            else:
                parts[done] = (stream, text[cut:])
        del parts[:done]

    def to_json(self) -> dict[str, Any]:
        return {"seq": self.seq, "kind": self.kind, "skipped": self.skipped, "parts": self.parts}

    @classmethod
    def from_json(cls, data: Any) -> Tail:
        """Raises TypeError, ValueError or KeyError for malformed data."""
        tail = cls(None if data["seq"] is None else int(data["seq"]), str(data["kind"]))
        tail.parts = [(str(stream), str(text)) for stream, text in data["parts"]]
        tail.skipped = {str(name): int(count) for name, count in data["skipped"].items()}
        return tail


class LiveFile:
    """The live file of a run, with the tails of its running actions."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._exists = False
        with suppress(OSError):
            files.unlink(path)  # left by a killed process
        self.tails: dict[int | None, Tail] = {}
        self.is_changed = False

    def save(self) -> None:
        """Write the tails if they have changed; ignores errors of the file system."""
        if not self.is_changed:
            return
        self.is_changed = False
        for tail in self.tails.values():
            tail.trim()
        text = light_json.dumps_ascii({"actions": [tail.to_json() for tail in self.tails.values()]})
        with suppress(JournalError):
            write_file(self._path, text.encode("ascii"), durable=False, mode=0o600)
            self._exists = True

    def end(self, seq: int | None) -> None:
        """Remove the tail of a finished action, and the file after the last one."""
        self.tails.pop(seq, None)
        self.is_changed = self._exists
        if self._exists and not self.tails:
            self._exists = self.is_changed = False
            with suppress(OSError):
                files.unlink(self._path)


class LiveDisplay(ForwardingDisplay):
    """Observer that forwards to `inner` and keeps the tails of outputs in `file`."""

    def __init__(self, inner: Display, file: LiveFile, seq: int | None = None) -> None:
        super().__init__(inner)
        self._file = file
        self._seq = seq

    def effect_start(self, kind: str, args: dict[str, Any]) -> None:
        self._file.tails[self._seq] = Tail(self._seq, kind)
        self._inner.effect_start(kind, args)

    def output(self, stream: str, text: str) -> None:
        file = self._file
        tail = file.tails.get(self._seq)
        if tail is not None:
            tail.add(stream, text)
            file.is_changed = True
        self._inner.output(stream, text)

    def concurrent(self, seq: int) -> Display:
        return LiveDisplay(self._inner.concurrent(seq), self._file, seq)

    def tick(self) -> None:
        self._inner.tick()
        self._file.save()

    def effect_end(self, kind: str, result: dict[str, Any]) -> None:
        self._file.end(self._seq)
        self._inner.effect_end(kind, result)

    def effect_cut(self) -> None:
        self._file.end(self._seq)
        self._inner.effect_cut()

    def end(self, outcome: Outcome) -> None:
        for seq in tuple(self._file.tails):
            self._file.end(seq)
        self._inner.end(outcome)


def read(path: str) -> list[Tail]:
    """The tails in a live file; [] if the file is missing or malformed."""
    try:
        with open_regular(path) as file:
            data = light_json.loads(file.read(_MAX_FILE_BYTES))
        return [Tail.from_json(action) for action in data["actions"]]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []
