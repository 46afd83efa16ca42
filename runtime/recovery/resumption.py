"""Restoring a run from its newest intact checkpoint, or else from its beginning.

Owns the choice of the start of a replay. Nothing is performed here; `launch` continues from it.
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
    """A run to be resumed. history: of its journal from the newest checkpoint on.

    warn: gets a sentence for each checkpoint that is not used. tier: execution mode. Raises
    JournalError where the journal cannot be read.
    """

    def __init__(self, run: RunFolder, warn: Callable[[str], None], tier: str = "auto") -> None:
        self._run = run
        self._tier = tier
        self._warn = warn
        self._candidates, notices = checkpoint_reader.load(run)
        for notice in notices:
            warn(f"note: {notice}; it is not used")
        self.history = run_history.load(run.journal, self._candidates[0] if self._candidates else None)

    def tidy_up(self) -> None:
        """Remove what only a run needs that has not ended."""
        Checkpoints(self._run).discard()

    def come_back(self, image: Image, world: WorldLike) -> Position:
        """Where the run stands, which began with the program `image`.

        Raises UserError where the program does not repeat its record.
        """

        run = self._run
        blobs = run.blobs
        for checkpoint in self._candidates:
            found = self._restored(checkpoint, image, world)
            if isinstance(found, str):
                run.image_name = FIRST_IMAGE
                self._warn(f"note: {found}; it is not used")
                continue
            if self.history.checkpoint is not checkpoint:
                self.history = run_history.load(run.journal, checkpoint)
            machine, progress = found
            return replay(machine, self.history, blobs, world, progress, self._program)
        if self.history.checkpoint is not None:
            self.history = run_history.load(run.journal)
        return replay(Machine(image, tier=self._tier), self.history, blobs, world, None, self._program)

    def _program(self, name: str) -> Image:
        """A program that the run went on with. Raises UserError and CompileError."""
        image = run_programs.load(self._run.id, self._run.journal, name, self._warn)
        self._run.image_name = name
        return image

    def checkpoints(self) -> Checkpoints:
        """For the checkpoints to come: the newest one that is there is written over last."""
        return Checkpoints(self._run, self.history.checkpoint)

    def _restored(
        self, checkpoint: Checkpoint, image: Image, world: WorldLike
    ) -> tuple[Machine, Progress] | str:
        """The machine and the progress of a checkpoint, and the world put back; or why that cannot be."""

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
        return (machine, progress) if is_restored else f"{name} is of another script"
