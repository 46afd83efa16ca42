"""`llc run --on`: a run is compiled, checked and recorded here, and driven by the workers of a cluster.

The record of a new run is complete when it enters the queue, in one transaction. A client that is killed
before leaves a run that workers take up (`database.segments`).
"""

from __future__ import annotations

import sys
from typing import Any

from ...vm.machine.machine import Machine
from ..database import schema
from ..database.connection import Address, connect
from ..database.store import Claim, open_store
from ..database.stored_run import DatabaseRun
from ..execution.observer import Display
from ..host.coroutines import Steps
from ..host.errors import UserError
from ..host.paths import ROOT
from ..host.screen import Screen
from ..journal.journal import Journal
from ..journal.outcome import Outcome
from ..journal.run_folder import RunFolder
from ..project.options import Values
from ..trees import workspace
from .command import Command
from .report import Report
from .run import new_run

# Options that belong to the process that drives a run.
_NOT_HERE = ("background", "no_input", "profile", "flame", "record", "queue", "jobs", "tier")


def submit(values: Values, url: str, labels: tuple[str, ...]) -> int:
    """Submit a new run; the exit code. Raises UserError."""
    for name in _NOT_HERE:
        if getattr(values, name):
            raise UserError("bad-option", f"`--{name.replace('_', '-')}` and `--on` exclude each other")
    address = Address.of(url)
    with connect(address) as connection:
        schema.check(connection, address)
    store = open_store(address)
    try:
        store.managed, store.labels = True, labels
        store.sweep()
        command = Submission(values, Report(values))
        command.store = store
        return command.execute(new_run)
    finally:
        store.close()


class Submission(Command):
    """A command that queues its run instead of driving it."""

    def display(self, image: Any) -> Display:
        return Display()

    def prepare(self, folder: RunFolder) -> None:
        """Store the files that the run works on. Raises UserError."""
        if self.settings is not None and self.settings.workspace is not None:
            assert isinstance(folder, DatabaseRun)
            workspace.submit(folder, *self.settings.workspace, ROOT)

    def drive(self, machine: Machine, journal: Journal, *others: Any, **more: Any) -> Steps[Outcome]:
        """Give the run to the queue."""
        assert self.folder is not None
        (claim,) = (one for one in others if isinstance(one, Claim))
        yield None
        journal.close()
        claim.status = "queued"
        claim.close()
        outcome = Outcome(self.folder.id, machine.image.name, machine.image.meta["kind"], "queued")
        if not self.report.as_json:
            screen = Screen(sys.stdout)
            screen.deliver(screen.encode(self.folder.id + "\n"))
        return outcome
