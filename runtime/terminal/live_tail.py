"""Live tail of a run: the latest output of its actions, for `attach` and `status` in other terminals.

`<name>.live` in the run's folder holds the end of the output of each action that is running. It is
written at the ticks of a wait, so an action of less than a tick costs nothing, and removed when
nothing runs. Nothing depends on it.
"""

from __future__ import annotations

from ...ir import light_json
from ...ir.python_internals import suppress
from ..execution.observer import Display
from ..host import files
from ..host.paths import open_regular
from ..journal.journal import JournalError, write_file
from ..journal.outcome import Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# Characters of an action's output that are kept; up to twice as many between two ticks.
KEPT = 16 * 1024
_LARGEST = 16 << 20


class Tail:
    """The end of one action's output.

    seq: the effect's number, None where it is the only one. parts: (stream, text) in order. skipped:
    how many characters of each stream came before.
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
    def from_json(cls, told: Any) -> Tail:
        """Raises TypeError, ValueError or KeyError for what is none."""
        tail = cls(None if told["seq"] is None else int(told["seq"]), str(told["kind"]))
        tail.parts = [(str(stream), str(text)) for stream, text in told["parts"]]
        tail.skipped = {str(name): int(count) for name, count in told["skipped"].items()}
        return tail


class LiveFile:
    """The tails of what is running, and the file they are in."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_there = False
        with suppress(OSError):
            files.unlink(path)  # a run that was killed left it
        self.tails: dict[int | None, Tail] = {}
        self.is_new = False

    def save(self) -> None:
        """Write what is new; a file that cannot be written is done without."""
        if not self.is_new:
            return
        self.is_new = False
        for tail in self.tails.values():
            tail.trim()
        text = light_json.dumps_ascii({"actions": [tail.to_json() for tail in self.tails.values()]})
        with suppress(JournalError):
            write_file(self._path, text.encode("ascii"), durable=False, mode=0o600)
            self._is_there = True

    def end(self, seq: int | None) -> None:
        """An action is over."""
        self.tails.pop(seq, None)
        self.is_new = self._is_there
        if self._is_there and not self.tails:
            self._is_there = self.is_new = False
            with suppress(OSError):
                files.unlink(self._path)


class LiveDisplay(Display):
    """Observer that forwards to `inner` and keeps the tails of outputs in `file`."""

    def __init__(self, inner: Display, file: LiveFile, seq: int | None = None) -> None:
        self._inner = inner
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
            file.is_new = True
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

    # --- forwarded unchanged ------------------------------------------------------------------------

    def begin(self, run_id: str, program: str) -> None:
        self._inner.begin(run_id, program)

    def resume(
        self, run_id: str, program: str, state: str | None, iteration: int, used: dict[str, Any] | None = None
    ) -> None:
        self._inner.resume(run_id, program, state, iteration, used)

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        self._inner.note(kind, fields)

    @property
    def has_person(self) -> bool:
        return self._inner.has_person

    def prompt(self, text: str) -> None:
        self._inner.prompt(text)

    def notice(self, text: str) -> None:
        self._inner.notice(text)


def read(path: str) -> list[Tail]:
    """The tails in a live file; none where there is no file, or nothing to be read in it."""
    try:
        with open_regular(path) as file:
            found = light_json.loads(file.read(_LARGEST))
        return [Tail.from_json(told) for told in found["actions"]]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []
