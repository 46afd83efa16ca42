"""Model of take-over and scope locks in the database, explored exhaustively.

It describes the protocol of `runtime/database` (`claims`, `owner`, `stored_run`) as transactions: workers
claim runs with overlapping scopes, perform their effects and append to their journals, while workers are
killed or frozen and the server restarts. `explore` visits every reachable state and checks the invariants in
each, and that all runs can still end from it without another fault. `spec/promises.md` has the guarantees.

The model has no time: the heartbeat of a frozen or dead worker lapses at any moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

# Phases of a run: the next step of its worker.
START, PERFORM, FINISH = "start", "perform", "finish"
UP, FROZEN, GONE = "up", "frozen", "gone"


class Job(NamedTuple):
    """A run from the view of its worker. seen: the journal, as of its claim and its own appends."""

    run: int
    epoch: int
    phase: str
    seen: tuple[tuple[str, int], ...]


class Worker(NamedTuple):
    """is_registered: it holds its lock since the last start of the server. has_lapsed: its heartbeat is
    overdue.
    """

    life: str = UP
    is_buried: bool = False
    has_lapsed: bool = False
    is_registered: bool = True
    job: Job | None = None


class Run(NamedTuple):
    """A row of the table of runs, and the rows of its journal: events with the epochs of their owners.

    performed: how often each effect was actually performed.
    """

    status: str = "queued"
    owner: int | None = None
    epoch: int = 0
    journal: tuple[tuple[str, int], ...] = ()
    performed: tuple[int, ...] = ()


class State(NamedTuple):
    workers: tuple[Worker, ...]
    runs: tuple[Run, ...]
    faults: int = 0


class Broken(Exception):
    """An invariant does not hold; the arguments are the error and the steps that lead to it."""


class Model:
    """The protocol.

    without: parts of the protocol to omit, which shows that the invariants detect it:

    - `epoch`: appends do not compare the epoch
    - `position`: appends do not compare the end of the journal
    - `read back`: an append with a lost answer counts as failed
    - `scope`: a claim locks no paths
    - `burial`: a claim ignores a run with its paths if that run's owner is dead
    - `fence`: a burial does not raise epochs
    - `lock`: a claim does not check whether the owner is dead
    - `server start`: a free lock counts after a restart of the server
    - `doubt`: an effect that has started is performed again
    - `start`: an effect is performed before its start is recorded
    """

    def __init__(
        self,
        workers: int = 3,
        runs: int = 2,
        effects: int = 1,
        faults: int = 2,
        without: frozenset[str] = frozenset(),
    ) -> None:
        self.effects = effects
        self.faults = faults
        self.without = without
        run = Run(performed=(0,) * effects)
        self.first = State((Worker(),) * workers, (run,) * runs)

    # --- results of database statements ---------------------------------------------------------

    def is_dead(self, state: State, index: int) -> bool:
        """As `owner.is_dead`: buried, its lock is free since the last start of the server, or its heartbeat
        lapsed.
        """
        worker = state.workers[index]
        is_free = worker.life == GONE or not worker.is_registered
        counts = worker.is_registered or "server start" in self.without
        return worker.is_buried or worker.has_lapsed or (is_free and counts)

    def claimed(self, state: State, number: int, index: int) -> State | None:
        """As `claims._claim`; None if the owner, or the owner of another run with the paths, is alive."""
        run = state.runs[number]
        if run.status == "ended":
            return None
        if run.owner is not None and "lock" not in self.without and not self.is_dead(state, run.owner):
            return None
        if run.status != "running" and "scope" not in self.without:
            for other in state.runs:
                if other.status == "running" and other.owner is not None:
                    if not self.is_dead(state, other.owner):
                        return None
                    if "burial" not in self.without:
                        state = self.buried(state, other.owner)
        return _with_run(state, number, run._replace(status="running", owner=index, epoch=run.epoch + 1))

    def buried(self, state: State, index: int) -> State:
        """As `owner.declare_dead`: the worker is dead for all, and its runs are queued again and fenced."""
        raised = 0 if "fence" in self.without else 1
        for number, run in enumerate(state.runs):
            if run.owner == index and run.status == "running":
                queued = run._replace(status="queued", owner=None, epoch=run.epoch + raised)
                state = _with_run(state, number, queued)
        return _with_worker(state, index, state.workers[index]._replace(is_buried=True))

    def appended(self, state: State, job: Job, event: str) -> Run | None:
        """The run with one more event; None if the append is rejected, as by `stored_run.append`."""
        run = state.runs[job.run]
        mine = (event, job.epoch)
        is_current = job.epoch == run.epoch or "epoch" in self.without
        if is_current and (job.seen == run.journal or "position" in self.without):
            return run._replace(journal=(*run.journal, mine))
        # The answer to this append may have been lost.
        was_mine = run.journal[len(job.seen) :][:1] == (mine,)
        return run if was_mine and "read back" not in self.without else None

    # --- steps ----------------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[tuple[str, State, bool]]:
        """Each possible step, the resulting state, and whether it is a fault."""
        for index, worker in enumerate(state.workers):
            yield from ((text, after, False) for text, after in self._of_worker(state, index, worker))
            if state.faults < self.faults:
                yield from ((text, after, True) for text, after in self._faults(state, index, worker))
        if state.faults < self.faults:
            workers = tuple(worker._replace(is_registered=False) for worker in state.workers)
            yield "the server restarts", State(workers, state.runs, state.faults + 1), True

    def _faults(self, state: State, index: int, worker: Worker) -> Iterator[tuple[str, State]]:
        state = state._replace(faults=state.faults + 1)
        if worker.life != GONE:
            yield f"kill {index}", _with_worker(state, index, worker._replace(life=GONE, job=None))
        if worker.life == UP:
            yield f"freeze {index}", _with_worker(state, index, worker._replace(life=FROZEN))
        if worker.life == UP and worker.job is not None and worker.job.phase != PERFORM:
            after = self._driven(state, index, worker.job)
            if after.runs != state.runs:
                yield f"the answer to {index} is lost", State(state.workers, after.runs, state.faults)

    def _of_worker(self, state: State, index: int, worker: Worker) -> Iterator[tuple[str, State]]:
        if worker.life == FROZEN:
            thawed = worker._replace(life=UP, has_lapsed=worker.is_buried and worker.has_lapsed)
            yield f"thaw {index}", _with_worker(state, index, thawed)
        if worker.life != UP:
            if not worker.has_lapsed:
                yield f"no heartbeat of {index}", _with_worker(state, index, worker._replace(has_lapsed=True))
            return
        if worker.is_buried:
            # It learns this with a later heartbeat.
            yield f"{index} ends", _with_worker(state, index, worker._replace(life=GONE, job=None))
        elif not worker.is_registered:
            yield f"{index} locks again", _with_worker(state, index, worker._replace(is_registered=True))
        if worker.job is not None:
            text = f"{index}: {worker.job.phase} in run {worker.job.run}"
            yield text, self._driven(state, index, worker.job)
            return
        if worker.is_buried:
            return
        for other, dead in enumerate(state.workers):
            if other != index and not dead.is_buried and self.is_dead(state, other):
                yield f"{index} buries {other}", self.buried(state, other)
        for number in range(len(state.runs)):
            after = self.claimed(state, number, index)
            if after is not None:
                run = after.runs[number]
                job = Job(number, run.epoch, START, run.journal)
                yield f"{index} claims run {number}", _with_worker(after, index, worker._replace(job=job))

    def _driven(self, state: State, index: int, job: Job) -> State:
        """The next transaction or action of a worker; without a job if it finds itself fenced."""
        worker, run = state.workers[index], state.runs[job.run]
        last = job.seen[-1][0] if job.seen else ""
        done = sum(event[0] in "ru" for event, _ in job.seen)
        if job.phase == PERFORM:
            counts = tuple(n + (effect == done) for effect, n in enumerate(run.performed))
            after = _with_run(state, job.run, run._replace(performed=counts))
            return _with_worker(after, index, worker._replace(job=job._replace(phase=FINISH)))
        phase = START
        if job.phase == FINISH:
            event = f"r{done}"
        elif last.startswith("s") and "doubt" not in self.without:
            event = f"u{done}"  # started by an earlier owner: its result is unknown
        elif done == self.effects:
            if job.epoch == run.epoch:
                state = _with_run(state, job.run, run._replace(status="ended", owner=None))
            return _with_worker(state, index, worker._replace(job=None))
        else:
            event, phase = f"s{done}", PERFORM
        if phase == PERFORM and "start" in self.without:
            return _with_worker(state, index, worker._replace(job=job._replace(phase=PERFORM)))
        after_run = self.appended(state, job, event)
        if after_run is None:
            return _with_worker(state, index, worker._replace(job=None))
        job = job._replace(phase=phase, seen=(*job.seen, (event, job.epoch)))
        return _with_worker(_with_run(state, job.run, after_run), index, worker._replace(job=job))

    # --- invariants -----------------------------------------------------------------------------

    def problem(self, before: State, text: str, state: State) -> str:
        """The error of a state or of the step that led to it; '' if there is none."""
        for number, run in enumerate(state.runs):
            expected = [f"{kind}{effect}" for effect in range(self.effects) for kind in "sr"]
            events = [event for event, _ in run.journal]
            if [event.replace("u", "r") for event in events] != expected[: len(events)]:
                return f"the journal of run {number} is {' '.join(events)}"
            if max(run.performed) > 1:
                return f"an effect of run {number} was performed twice"
            if any(event[0] == "r" and not run.performed[int(event[1:])] for event in events):
                return f"run {number} has the result of an effect that was not performed"
            owner = before.runs[number].owner
            is_taken = owner not in (None, run.owner) and run.epoch > before.runs[number].epoch
            if is_taken and before.workers[owner or 0][:2] == (UP, False):
                return f"run {number} was taken from a worker that is up"
        jobs = [worker.job for worker in state.workers if worker.job is not None and worker.life == UP]
        driven = [state.runs[job.run] for job in jobs if job.epoch == state.runs[job.run].epoch]
        driving = [run for run in driven if run.status != "ended"]
        return "two runs with one path are driven at once" if len(driving) > 1 else ""


def explore(model: Model) -> int:
    """Visit all states up to renaming of workers and runs; returns their number. Raises `Broken`."""
    came: dict[State, tuple[State, str] | None] = {model.first: None}
    known = {_canonical(model.first): model.first}
    leads: dict[State, list[State]] = {}
    waiting = deque([model.first])
    while waiting:
        state = waiting.popleft()
        for text, after, is_fault in model.steps(state):
            problem = model.problem(state, text, after)
            if problem:
                raise Broken(problem, [*_path(came, state), text])
            key = _canonical(after)
            if key not in known:
                known[key] = after
                came[after] = (state, text)
                waiting.append(after)
            if not is_fault:
                leads.setdefault(known[key], []).append(state)
    ended = [state for state in came if all(run.status == "ended" for run in state.runs)]
    can_end = set(ended)
    while ended:
        for before in leads.get(ended.pop(), ()):
            if before not in can_end:
                can_end.add(before)
                ended.append(before)
    for state in came:
        is_lost = all(worker.life == GONE or worker.is_buried for worker in state.workers)
        if state not in can_end and not is_lost:
            raise Broken("the runs cannot end any more", _path(came, state))
    return len(came)


def _canonical(state: State) -> tuple[object, ...]:
    """Equal for states that differ only in the names of workers and runs."""
    forms = []
    for order in permutations(range(len(state.runs))):
        runs = [state.runs[number] for number in order]
        workers = []
        for index, worker in enumerate(state.workers):
            job = worker.job
            seen = () if job is None else (order.index(job.run), *job[1:])
            workers.append((*worker[:4], seen, tuple(run.owner == index for run in runs)))
        facts = [(run.status, run.owner is None, *run[2:]) for run in runs]
        forms.append((tuple(sorted(workers)), tuple(facts), state.faults))
    return min(forms)


def _path(came: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    steps = []
    step = came[state]
    while step is not None:
        steps.append(step[1])
        step = came[step[0]]
    return steps[::-1]


def _with_worker(state: State, index: int, worker: Worker) -> State:
    return state._replace(workers=(*state.workers[:index], worker, *state.workers[index + 1 :]))


def _with_run(state: State, number: int, run: Run) -> State:
    return state._replace(runs=(*state.runs[:number], run, *state.runs[number + 1 :]))
