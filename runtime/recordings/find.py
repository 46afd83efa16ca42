"""Search for a recorded run by id, path of its folder, or loop."""

from __future__ import annotations

import os.path

from ...ir.records import frozen
from ...vm.code.image import Image
from ..host import files
from ..host.paths import FIRST_IMAGE, HISTORY, ROOT, RUNNING
from ..host.screen import counted
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
    """Paths of a run's files; the folder may be a copy in another place."""

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
        """Load the program with which the run started. Raises UserError and CompileError."""
        return self.load_program(FIRST_IMAGE)

    def load_program(self, name: str) -> Image:
        """Load a program of the run by the name of its file. Raises UserError and CompileError."""
        return run_programs.load(self.name, self.journal, name)

    def history(self) -> RunHistory:
        """The detailed history of the run. Raises ReadError."""
        return run_history.load(self.journal)

    def recording(self) -> Recording:
        """The recording in the journal, up to the first damage. Raises ReadError and UserError."""
        entries = read(self.journal)
        file = EventFile(self.journal)
        recording, damage = recording_of(self.name, entries, file, Blobs(self.outputs).fetch)
        recording.programs = self.load_program
        if damage is not None:
            # Events after lost events cannot be re-executed.
            after = sum(not isinstance(entry, Damage) for entry in entries)
            events = f"; the {counted(after, 'event')} after it are left out too" if after else ""
            recording.left_out = f"{self.journal}: {damage} and left out{events}"
        return recording


def find_run(target: str) -> RunFiles:
    """The run with this id or folder, or the last run of this loop, preferably one without a script.

    Raises UserError.
    """
    path = os.path.join(ROOT, target)
    if os.path.sep in target and files.isdir(path):
        return run_at(path)
    run = find_run_folder(target)
    if run.id != target:
        runs = [run for folder in (RUNNING, HISTORY) for run in runs_in(ROOT, folder)]
        of_loop = [run for run in runs if not run.is_unrecorded() and is_run_of(run, target)]
        run = max(of_loop, key=lambda run: (not run.is_scripted(), run.id[-20:]), default=run)
    return RunFiles.of(run)


def run_at(path: str) -> RunFiles:
    """The run in a folder. Raises UserError."""
    return RunFiles(os.path.basename(os.path.normpath(path)), path, journal_in(path))
