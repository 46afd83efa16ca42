"""Metrics of a cluster in Prometheus text format; one SQL statement computes each metric."""

from __future__ import annotations

from ..journal.exposition import gauge
from .connection import Connection

# Name, help text, and a statement; each row consists of labels (name, value, …) and the value.
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


def format_metrics(connection: Connection) -> str:
    """Return all metrics in Prometheus text format."""
    lines = []
    for name, help, statement in _METRICS:
        samples = []
        for *labels, value in connection.execute(statement).fetchall():
            samples.append((dict(zip(labels[::2], labels[1::2], strict=True)), value))
        lines.append(gauge(name, help, samples))
    return "".join(lines)
