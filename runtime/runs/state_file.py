"""State file (`<name>.state.json`): the current state of a run for other programs.

Written at intervals and never read back: the journal is the truth, so a failed write does no harm.
"""

from __future__ import annotations

from ...ir.light_json import dumps_indented
from ...vm.machine.machine import Machine
from ...vm.values.values import to_host
from ..host import clock, secrets
from ..journal.journal import JournalError
from ..journal.position import Progress
from ..journal.run_folder import RunFolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Maximum delay in seconds while the run is busy.
EVERY = 1.0
# Limits in characters: of one text, of each of many texts, and of all captured texts together. The file is
# rewritten often and must not grow with what a run captures.
_LONGEST_TEXT = 4096
_SHORTEST_TEXT = 80
_ROOM = 16 * _LONGEST_TEXT
# Origin of library functions, and the number of innermost frames that are searched.
_LIBRARY = "stdlib/"
_NEAR = 32


class StateFile:
    """Writer of a run's state file. begun: start of the run; now: returns a time stamp.

    is_old: something has happened since the last write.
    """

    def __init__(
        self, run: RunFolder, machine: Machine, progress: Progress, begun: str, now: Callable[[], str]
    ) -> None:
        self._run = run
        self.machine = machine
        self._progress = progress
        self._begun = begun
        self._now = now
        self._kind: str = machine.image.meta["kind"]
        self._saved = 0.0
        self.is_old = True

    @property
    def is_due(self) -> bool:
        return clock.monotonic() - self._saved > EVERY

    def save(self, status: str = "running") -> None:
        """Write the file; after a failure the old one remains."""
        self._saved = clock.monotonic()
        self.is_old = False
        try:
            data = dumps_indented(self._state(status))
            text = data.encode("utf-8", "replace") + b"\n"
            self._run.write(self._run.state_name, text, durable=False)
        except (JournalError, ValueError, TypeError, RecursionError):
            return

    def _place(self) -> str | None:
        """The current state of a flow: the author's innermost function and its state."""
        if self._kind == "loop":
            return None
        # There may be millions of frames; the author's innermost is near the end.
        for frame in reversed(self.machine.frames(_NEAR)):
            place = frame.origin
            if place is None or not place[0].startswith(_LIBRARY):
                return f"{frame.function}/{frame.state}"
        return None

    def _loop_slots(self) -> dict[str, Any]:
        """The slots of the innermost active loop; a flow's own `result` is not shown."""
        frames = self.machine.frames(_NEAR)
        loops = {loop["function"] for loop in self.machine.image.meta.get("loops", ())}
        for frame in reversed(frames):
            if frame.function in loops:
                return frame.slots
        return frames[0].slots if 0 < len(frames) < _NEAR and self._kind == "loop" else {}

    def _state(self, status: str) -> dict[str, Any]:
        slots = self._loop_slots()
        kept = [name for name in slots if name.startswith("captured.")]
        longest = max(_SHORTEST_TEXT, min(_LONGEST_TEXT, _ROOM // max(1, len(kept))))
        captured = {name[len("captured.") :]: _shortened(to_host(slots[name]), longest) for name in kept}
        return {
            "run": self._run.id,
            "program": self.machine.image.name,
            "status": status,
            "current_state": self._progress.state or self._place(),
            "iteration": self._progress.iteration,
            "steps": self._progress.steps,
            "captured": captured,
            "last_result": _shortened(to_host(slots["result"]), _LONGEST_TEXT) if "result" in slots else None,
            "started_at": self._begun,
            "updated_at": self._now(),
        }


def _shortened(value: Any, longest: int) -> Any:
    """A value with secrets masked and long texts shortened."""
    if isinstance(value, str):
        value = secrets.masked(value)
        if len(value) <= longest:
            return value
        half = longest // 2
        return f"{value[:half]}\n… {len(value) - 2 * half} characters …\n{value[-half:]}"
    if isinstance(value, dict):
        return {name: _shortened(item, longest) for name, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item, longest) for item in value]
    return value
