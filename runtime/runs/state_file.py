"""State file (`<name>.state.json`): the current state of a run, for other programs.

The file is written at intervals and never read by llc. The journal is the source of truth, so a failed write
is harmless.
"""

from __future__ import annotations

from ...ir.light_json import dumps_indented
from ...vm.machine.control import is_library
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

# Write interval while the run is busy, in seconds.
WRITE_INTERVAL_S = 1.0
# Limits in characters: of one text, of each text if there are many, and of all captured texts together. The
# file is rewritten often, so it must not grow with the amount of captured text.
_MAX_TEXT_CHARS = 4096
_MIN_TEXT_CHARS = 80
_MAX_CAPTURED_CHARS = 16 * _MAX_TEXT_CHARS
# Number of innermost frames in which a place of the author is searched.
MAX_SEARCHED_FRAMES = 32


class StateFile:
    """Writer of a run's state file.

    started_at: start of the run. now: returns a timestamp. is_stale: the state has changed since the last
    write.
    """

    def __init__(
        self, run: RunFolder, machine: Machine, progress: Progress, started_at: str, now: Callable[[], str]
    ) -> None:
        self._run = run
        self.machine = machine
        self._progress = progress
        self._started_at = started_at
        self._now = now
        self._kind: str = machine.image.meta["kind"]
        self._written_at = 0.0
        self.is_stale = True

    @property
    def is_due(self) -> bool:
        return clock.monotonic() - self._written_at > WRITE_INTERVAL_S

    def save(self, status: str = "running") -> None:
        """Write the file; after a failure the previous file remains."""
        self._written_at = clock.monotonic()
        self.is_stale = False
        try:
            data = dumps_indented(self._state(status))
            text = data.encode("utf-8", "replace") + b"\n"
            self._run.write(self._run.state_name, text, durable=False)
        except (JournalError, ValueError, TypeError, RecursionError):
            return

    def _flow_state(self) -> str | None:
        """Current state of a flow: the innermost function outside the library, and its state."""
        if self._kind == "loop":
            return None
        # There may be millions of frames; only the innermost frames are searched.
        for frame in reversed(self.machine.frames(MAX_SEARCHED_FRAMES)):
            origin = frame.origin
            if not is_library(origin):
                return f"{frame.function}/{frame.state}"
        return None

    def _loop_slots(self) -> dict[str, Any]:
        """Slots of the innermost active loop; empty for a flow outside of its loops."""
        frames = self.machine.frames(MAX_SEARCHED_FRAMES)
        loops = {loop["function"] for loop in self.machine.image.meta.get("loops", ())}
        for frame in reversed(frames):
            if frame.function in loops:
                return frame.slots
        has_all_frames = 0 < len(frames) < MAX_SEARCHED_FRAMES
        return frames[0].slots if has_all_frames and self._kind == "loop" else {}

    def _state(self, status: str) -> dict[str, Any]:
        slots = self._loop_slots()
        names = [name for name in slots if name.startswith("captured.")]
        limit = max(_MIN_TEXT_CHARS, min(_MAX_TEXT_CHARS, _MAX_CAPTURED_CHARS // max(1, len(names))))
        captured = {name[len("captured.") :]: _shorten(to_host(slots[name]), limit) for name in names}
        last_result = _shorten(to_host(slots["result"]), _MAX_TEXT_CHARS) if "result" in slots else None
        return {
            "run": self._run.id,
            "program": self.machine.image.name,
            "status": status,
            "current_state": self._progress.state or self._flow_state(),
            "iteration": self._progress.iteration,
            "steps": self._progress.steps,
            "captured": captured,
            "last_result": last_result,
            "started_at": self._started_at,
            "updated_at": self._now(),
        }


def _shorten(value: Any, limit: int) -> Any:
    """Mask secrets and shorten long texts in a value. limit: characters per text."""
    if isinstance(value, str):
        value = secrets.masked(value)
        if len(value) <= limit:
            return value
        half = limit // 2
        return f"{value[:half]}\n… {len(value) - 2 * half} characters …\n{value[-half:]}"
    if isinstance(value, dict):
        return {name: _shorten(item, limit) for name, item in value.items()}
    if isinstance(value, list):
        return [_shorten(item, limit) for item in value]
    return value
