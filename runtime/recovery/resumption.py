"""Restoration of a run from its newest intact checkpoint, or from its beginning without one.

Owns the choice of the starting point of a replay. Performs no effects; `launch` continues the run.
"""

from __future__ import annotations

from ...vm.code.image import Image
from ...vm.machine.snapshot import SnapshotError
from ...vm.tiered import Machine
from ..host.effect_context import WorldLike
from ..host.errors import UserError
from ..host.paths import FIRST_IMAGE
from ..journal import run_history
from ..journal.journal import BlobError
from ..journal.position import Progress
from ..journal.run_folder import RunFolder
from ..journal.run_history import Checkpoint
from ..project import run_programs
from ..runs import checkpoint_reader
from ..runs.checkpoints import Checkpoints
from .replay import Position, replay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Resumption:
    """A run to resume. history: the fold of its journal from the newest checkpoint on.

    warn: called with a sentence for each checkpoint that is not used. tier: execution mode. Raises
    JournalError if the journal cannot be read.
    """

    def __init__(self, run: RunFolder, warn: Callable[[str], None], tier: str = "auto") -> None:
        self._run = run
        self._tier = tier
        self._warn = warn
        self._candidates, notices = checkpoint_reader.load(run)
        for notice in notices:
            warn(f"note: {notice}; it is not used")
        self.history = run_history.load(run.journal, self._candidates[0] if self._candidates else None)

    def discard_checkpoints(self) -> None:
        """Remove the checkpoints: a finished run needs none."""
        Checkpoints(self._run).discard()

    def replay(self, image: Image, world: WorldLike) -> Position:
        """Replay the run to the end of its record. image: the program that it started with.

        Raises UserError if the program does not repeat its record.
        """
        run = self._run
        blobs = run.blobs
        for checkpoint in self._candidates:
            restored = self._restore(checkpoint, image, world)
            if isinstance(restored, str):
                run.image_name = FIRST_IMAGE
                self._warn(f"note: {restored}; it is not used")
                continue
            if self.history.checkpoint is not checkpoint:
                self.history = run_history.load(run.journal, checkpoint)
            machine, progress = restored
            return replay(machine, self.history, blobs, world, progress, self._program)
        if self.history.checkpoint is not None:
            self.history = run_history.load(run.journal)
        return replay(Machine(image, tier=self._tier), self.history, blobs, world, None, self._program)

    def _program(self, name: str) -> Image:
        """Load a later program of the run. Raises UserError and CompileError."""
        image = run_programs.load(self._run.id, self._run.journal, name, self._warn)
        self._run.image_name = name
        return image

    def checkpoints(self) -> Checkpoints:
        """The writer of further checkpoints; it overwrites the newest existing checkpoint last."""
        return Checkpoints(self._run, self.history.checkpoint)

    def _restore(
        self, checkpoint: Checkpoint, image: Image, world: WorldLike
    ) -> tuple[Machine, Progress] | str:
        """Restore machine, progress and world from a checkpoint; a sentence with the reason if impossible."""
        facts = checkpoint.facts
        name = f"checkpoint-{checkpoint.turn + 1}"
        try:
            if facts["image"] != self._run.image_name:
                image = self._program(facts["image"])
            snapshot: Any = checkpoint_reader.unpacked(self._run, facts["snapshot"])
            saved = checkpoint_reader.unpacked(self._run, facts["world"])
            machine = Machine.restore(image, snapshot, tier=self._tier)
            progress = Progress.from_data(facts["progress"])
            is_restored = world.restore(saved)
        except (SnapshotError, BlobError, UserError) as error:
            return f"{name}: {error}"
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return f"{name} is malformed"
        return (machine, progress) if is_restored else f"{name} belongs to another script"
