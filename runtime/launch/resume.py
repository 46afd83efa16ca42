"""`llc resume` and `llc fork`: an unfinished or forked run, from its record to its outcome.

Owns the order of the steps: read the record, load the program, take the lock, replay to the position, then
the steps of any run (`command`). A run that had ended but was not moved to the history is moved.
"""

from __future__ import annotations

from ...ir.effects import CONTINUE, ON_UNKNOWN
from ...vm.code.image import Image
from ...vm.machine.machine import TIERS, Machine
from ..host import files
from ..host.clock import timestamp
from ..host.coroutines import Steps, alone
from ..host.effect_context import Interrupt, Interrupted
from ..host.errors import Failure, UserError, refuse_missing_folder
from ..host.paths import ROOT
from ..journal import active_time
from ..journal import journal as journals
from ..journal.events import ABSENT, ProgramChanged, RunEnd, RunResume
from ..journal.outcome import Outcome
from ..journal.reader import Damage
from ..journal.run_folder import RunFolder
from ..project import program_diff, run_programs
from ..project.limits import Bounds
from ..project.options import Values
from ..recovery.in_doubt import FAILED_RESULT, InDoubt
from ..recovery.replay import Position
from ..recovery.resumption import Resumption
from ..runs.follower import load_history
from ..runs.lookup import find_unfinished
from .command import Command, execute
from .stop_signals import StopSignals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..journal.totals import Used
    from ..recordings.fork import Forked
    from ..runs.store import Ownership

# Fields of a lock file that describe the process that holds it, as opposed to its run.
_HOLDER_FIELDS = (
    *("run", "pid", "start_time", "since", "scope", "parent", "background", "host"),
    *("queued", "ticket", "waits_for", "kept"),
)


def resume(values: Values) -> int:
    """Execute `llc resume`; return the exit code."""
    return execute(values, _resume)


def fork(values: Values, make: Callable[[], Forked]) -> int:
    """Execute `llc fork`: resume the new run that `make` creates; return the exit code."""
    return execute(values, lambda command: _fork(command, make))


def _resume(command: Command) -> Outcome | None:
    values = command.values
    command.choose_tier()
    command.configure()
    choices = (*ON_UNKNOWN, CONTINUE)
    if values.on_unknown not in (None, *choices):
        raise UserError("bad-option", f"--on-unknown is one of {', '.join(choices)}")
    if values.flame:
        refuse_missing_folder(values.flame)
    folder = (command.find or find_unfinished)(values.target, ROOT)
    with StopSignals(command.report.is_silent, command.is_background) as interrupt:
        return alone(resume_run(command, folder, interrupt))


def _fork(command: Command, make: Callable[[], Forked]) -> Outcome | None:
    """Create the fork and resume it. A fork that cannot be resumed is removed: `resume` must not find it."""
    command.choose_tier()
    command.configure()
    command.budget_of(command.values, {})  # refuse an invalid budget before the fork is created
    with StopSignals(command.report.is_silent) as interrupt:
        forked = make()
        run = forked.run
        if interrupt.count:
            run.discard()
            raise Interrupted
    command.values.target, command.announcement = run.id, str(forked)
    try:
        return _resume(command)
    except UserError:
        run.discard()
        command.folder = None
        raise


def resume_run(command: Command, folder: RunFolder, interrupt: Interrupt) -> Steps[Outcome]:
    """Resume an unfinished run and drive it to its end."""
    values = command.values
    command.folder = folder
    start = folder.start()
    if not start:
        raise _no_record(folder)
    command.bounds = Bounds.of_record(start, values.fuel)
    command.bounds.apply()
    command.budget = {}
    if values.budget or "budget" in start:
        from ..project import budget

        command.budget = budget.limits_on_resume(start, values.budget)
    command.image = image = run_programs.load(folder.id, folder.journal, folder.image_name, command.warn)
    about = {name: value for name, value in folder.about().items() if name not in _HOLDER_FIELDS}
    about |= command.holder_fields()
    script = start.get("script")
    scope = [] if script else program_diff.scopes(folder, image, start if values.accept_changes else None)
    lock = yield from command.store.taking_over(folder, scope, about, command.queue(interrupt), command.ours)
    try:
        folder.settle()
        resumption = Resumption(folder, command.warn, command.tier)
        end = resumption.history.end
        if end is not None:
            outcome = _recorded_outcome(command, folder, image, end)
            resumption.discard_checkpoints()
            folder.finish()
            command.warn(f"note: {folder.id} had already ended; this is its recorded outcome")
            return outcome
        truncation = resumption.history.truncation
        if truncation is not None and not values.accept_loss:
            raise _truncated(folder, truncation)
        if not script:
            command.check(image)
        command.open_world(script)
        command.prepare(folder)
        return (yield from _replay_and_drive(command, folder, image, resumption, lock, interrupt))
    finally:
        lock.close()


def _recorded_outcome(command: Command, folder: RunFolder, image: Image, event: RunEnd) -> Outcome:
    """Outcome of a run that had ended, but was not moved to the history."""
    end = event.wire
    try:
        end = journals.unpack(end, folder.blobs.fetch)
    except journals.BlobError as error:
        command.warn(f"warning: {error}")
    return Outcome.of_event(folder.id, image.name, image.meta["kind"], end)


def _replay_and_drive(
    command: Command,
    folder: RunFolder,
    image: Image,
    resumption: Resumption,
    lock: Ownership,
    interrupt: Interrupt,
) -> Steps[Outcome]:
    """Replay the record and drive the run from there."""
    values, world = command.values, command.world
    position = resumption.replay(image, world)
    machine, history, progress = position.machine, resumption.history, position.progress
    for loss in position.lost:
        command.warn(f"warning: {folder.journal}: {loss}")
    machine, is_accepted = _accept_changes(command, folder, position)
    command.image = image = machine.image
    in_doubt = InDoubt(folder, position, machine.waiting, values.on_unknown, command.report.errors, interrupt)
    in_doubt.kept = {int(name.rpartition("/")[2]): action for name, action in lock.kept.items()}
    if is_accepted:
        in_doubt.end_survivors()  # the new program requests its own effects
    policies = in_doubt.settle()
    folder.check_room()
    cut = position.cut
    kept = folder.set_aside(cut) if cut is not None else None
    if kept is not None:
        command.warn(f"note: the events removed from the journal are kept in {kept}")
    if is_accepted:
        program_diff.keep(folder, image)
    lines = history.lines if cut is None else history.lines_before(cut)
    journal = folder.append_journal(lambda: timestamp(world.time()), lines)
    parked = folder.parked
    active_ms = history.active_ms() + (parked.gap_ms if parked is not None else 0)
    active_ms = max([active_ms, *(action.elapsed_ms() for action in in_doubt.kept.values())])
    # Notes that are not recorded yet follow: they begin in the state in which the record ends.
    is_behind = bool(position.notes) and position.cut is None and history.state is not None
    place = history.progress if is_behind else progress
    journal.record(
        RunResume(
            state=place.state,
            iteration=place.iteration,
            elapsed_ms=active_ms,
            unknown={str(seq): policy for seq, policy in policies.items()},
            lost=position.lost,
            set_aside=kept,
            doubtful=position.marks() if position.doubtful else ABSENT,
        )
    )
    if is_accepted:
        name, program_hash = folder.image_name, image.program_hash
        journal.record(ProgramChanged(program_hash=program_hash, image=name, state=progress.state))
    journal.sync()
    active_time.discard(folder.path)  # the event above contains it; the journal may be shorter than before
    command.announce()
    command.detach(folder)
    display = command.display(image)
    used = _used(command, folder, resumption)
    usage = used.as_usage() if used is not None else None
    display.resume(folder.id, image.name, place.state, place.iteration, usage)
    if machine.direct is None:
        machine.warm = TIERS[command.tier]
    answers = {seq: FAILED_RESULT for seq, policy in policies.items() if policy == "fail"}
    return (
        yield from command.drive(
            machine,
            journal,
            display,
            interrupt,
            resumption.checkpoints(),
            lock,
            (position.outcome, position.notes, answers, position.places),
            used if command.budget else None,
            progress=progress,
            base_ms=active_ms,
            started_at=history.started_at,
            settle=in_doubt.settle_later_effect,
            interrupted=in_doubt.agents,
            kept=in_doubt.kept,
            in_doubt=in_doubt.started,
            doubtful=position.marks,
            waited=parked.waited if parked is not None else None,
        )
    )


def _accept_changes(command: Command, folder: RunFolder, position: Position) -> tuple[Machine, bool]:
    """Report how the program has changed, and continue in the new program if the user accepts it.

    Returns the machine, and whether the new program is accepted.
    """
    machine, is_accepted = position.machine, command.values.accept_changes
    change = program_diff.find(
        folder.start(), machine.image, folder.outputs, lambda: run_programs.links(folder.journal)
    )
    if change is None:
        return machine, False
    if change.image is not None or not is_accepted:
        command.warn(change.text(folder.id, position.progress.state, is_accepted))
    if is_accepted:
        machine, dropped = program_diff.accept(folder, machine, change)
        for name in dropped:
            command.warn(f"note: the new program has no `{name}`; the run's value for it is dropped")
    return machine, is_accepted


def _used(command: Command, folder: RunFolder, resumption: Resumption) -> Used | None:
    """The consumption so far; None if neither the record of the run nor a budget needs it."""
    # A checkpoint of an earlier version has no history: with a budget, read the whole journal.
    newest = resumption.history.checkpoint
    if newest is None or newest.is_whole:
        return resumption.history.used
    return load_history(folder).used if command.budget else None


def _no_record(folder: RunFolder) -> UserError:
    """Error for a journal without its first event: the finished effects and the kind of world are unknown."""
    if not files.exists(folder.journal):
        state = "is missing"
    elif not files.isfile(folder.journal):
        state = "is not a regular file"
    else:
        state = "has lost its beginning" if files.getsize(folder.journal) else "is empty"
    return Failure(
        "no-record",
        f"{folder.id} cannot be resumed: its journal {state}, so its finished actions are unknown",
        f"nothing was performed; inspect {folder.path}; to abandon it: llc clean {folder.id} --unfinished",
    )


def _truncated(folder: RunFolder, damage: Damage) -> UserError:
    """Error for a journal that is shorter than it was: finished actions may be unknown."""
    return Failure(
        "truncated-journal",
        f"the journal of {folder.id} is truncated: {damage}, {damage.missing} bytes that were on disk",
        f"nothing was performed; restore {folder.journal}; or continue from the remaining events, which may "
        f"perform finished actions again: llc resume {folder.id} --accept-loss",
    )
