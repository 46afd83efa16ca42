"""Metrics of a cluster in the text format of Prometheus, computed from the database in one statement each."""

from __future__ import annotations

from ..journal.exposition import gauge
from .connection import Connection

# Name, help text, and a statement whose rows are labels (name, value, …) and a number.
_METRICS = (
    (
        "llc_workers",
        "Workers by state.",
        "select 'state', s, count(id) from unnest(array['live', 'draining']) s "
        "left join workers on state = s group by s order by s desc",
    ),
    (
        "llc_worker_capacity",
        "Runs that the living workers can drive at once.",
        "select coalesce(sum(capacity), 0) from workers where state = 'live'",
    ),
    (
        "llc_runs",
        "Runs by project and status.",
        "select 'project', project, 'status', status, count(*) from runs group by project, status "
        "order by project, status",
    ),
    (
        "llc_queue_oldest_seconds",
        "Age of the oldest queued run by project.",
        "select 'project', project, round(extract(epoch from now() - min(changed)))::bigint "
        "from runs where status = 'queued' group by project order by project",
    ),
    (
        "llc_heartbeat_age_seconds",
        "Seconds since the last heartbeat by worker.",
        "select 'worker', id, round(extract(epoch from clock_timestamp() - beat)::numeric, 1)::float "
        "from workers where state <> 'dead' order by id",
    ),
)


def text(connection: Connection) -> str:
    """All metrics."""
    lines = []
    for name, help, statement in _METRICS:
        samples = []
        for *labels, number in connection.execute(statement).fetchall():
            samples.append((dict(zip(labels[::2], labels[1::2], strict=True)), number))
        lines.append(gauge(name, help, samples))
    return "".join(lines)
