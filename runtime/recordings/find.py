"""Finding a recorded run by its id, the path of its folder, or its loop."""

from __future__ import annotations

import os.path

from ...ir.records import frozen
from ...vm.code.image import Image
from ..host import files
from ..host.paths import FIRST_IMAGE, HISTORY, ROOT, RUNNING
from ..journal import run_history
from ..journal.journal import Blobs
from ..journal.reader import Damage, EventFile, read
from ..journal.run_folder import RunFolder, journal_in
from ..journal.run_history import RunHistory
from ..project import run_programs
from ..runs.lookup import find_run_folder, is_run_of
from ..runs.runs import runs_in
from .recording import Recording, recording_of


@frozen
class RunFiles:
    """Paths of a run's files, also in a folder that was copied elsewhere."""

    name: str
    folder: str
    journal: str

    @property
    def outputs(self) -> str:
        return os.path.join(self.folder, "outputs")

    @classmethod
    def of(cls, run: RunFolder) -> RunFiles:
        return cls(run.id, run.path, run.journal)

    def load_image(self) -> Image:
        """The program the run began with. Raises UserError and CompileError."""
        return self.load_program(FIRST_IMAGE)

    def load_program(self, name: str) -> Image:
        """A program that the run continued with. Raises UserError and CompileError."""
        return run_programs.load(self.name, self.journal, name)

    def history(self) -> RunHistory:
        """Its detailed history. Raises ReadError."""
        return run_history.load(self.journal)

    def recording(self) -> Recording:
        """What is in its journal, up to where that is damaged. Raises ReadError and UserError."""
        entries = read(self.journal)
        file = EventFile(self.journal)
        recording, damage = recording_of(self.name, entries, file, Blobs(self.outputs).fetch)
        recording.programs = self.load_program
        if damage is not None:
            # Events that follow from lost ones cannot be executed again.
            after = sum(not isinstance(entry, Damage) for entry in entries)
            more = f", and so {'is' if after == 1 else 'are'} the {after} after it" if after else ""
            recording.left_out = f"{self.journal}: {damage} and left out{more}"
        return recording


def find_run(target: str) -> RunFiles:
    """The run with that id or in that folder, else the last one of that loop that was no scripted one.

    Raises UserError.
    """
    path = os.path.join(ROOT, target)
    if os.path.sep in target and files.isdir(path):
        return run_at(path)
    found = find_run_folder(target)
    if found.id != target:
        same = [run for folder in (RUNNING, HISTORY) for run in runs_in(ROOT, folder)]
        same = [run for run in same if not run.is_husk() and is_run_of(run, target)]
        found = max(same, key=lambda run: (not run.is_scripted(), run.id[-20:]), default=found)
    return RunFiles.of(found)


def run_at(path: str) -> RunFiles:
    """The run in a folder. Raises UserError."""
    return RunFiles(os.path.basename(os.path.normpath(path)), path, journal_in(path))
