"""Output formats of a profile: a table, JSON, and files for flame graphs; `spec/profile.md`.

Used by `llc profile` and at the end of a run with `--profile` or `--flame`. `execution.profiler` measures.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from ... import __version__
from ...ir.effects import EFFECTS
from ..execution.profiler import Profile, of_events
from ..host import secrets
from ..host.errors import Failure
from ..host.screen import Screen, printable
from ..journal import reader
from ..journal.journal import JournalError, write_file
from ..recordings.find import find_run
from ..runs.follower import damage_notes
from .tables import columns

_ARROW = " > "
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def of_run(target: str) -> Profile:
    """The profile of a run, found by id, folder or loop. Raises UserError."""
    run_files = find_run(target)
    profile = of_record(run_files.name, run_files.journal)
    Screen(sys.stderr).write(damage_notes(run_files.journal, profile.damaged))
    return profile


def of_record(name: str, journal: str) -> Profile:
    """The profile of the run in a journal. Raises UserError if the journal cannot be read."""
    try:
        return of_events(name, reader.read(journal))
    except JournalError as error:
        raise Failure("no-record", error.message) from None


# --- the table --------------------------------------------------------------------------------


def as_text(profile: Profile, screen: Screen) -> str:
    """The shares of the time, then a row for each state and effect, then rows for llc itself."""
    total_time = profile.time
    parts = _parts(profile)
    shares = ", ".join(f"{name} {_percent(share, total_time)}" for name, share in parts.items())
    rows = [["STATE", "EFFECT", "COUNT", "TOTAL", "MEAN", "SHARE"]]
    has_concurrent = False
    for (states, kind), cost in profile.costs.items():
        mean = _time(cost.total / cost.count) if cost.count else "-"
        shown = _ARROW.join(printable(" ".join(state.split())) for state in states) or "-"
        rows.append([shown, kind, str(cost.count), _time(cost.total), mean, _percent(cost.share, total_time)])
        has_concurrent = has_concurrent or cost.total - cost.share > 0.0005
    for name, cost in _own(profile):
        # From a journal, llc's time is the remaining time and has no count; a measured time has a count.
        total = _time(cost.total) if cost.count else _time(cost.share)
        mean = _time(cost.total / cost.count) if cost.count else "-"
        label = name if name == "llc" else f"llc: {name}"
        rows.append([label, "-", str(cost.count or "-"), total, mean, _percent(cost.share, total_time)])
    text = f"{printable(profile.name)}: {_time(total_time)}; {shares}\n" + columns(rows, screen)
    if has_concurrent:
        text += "TOTAL adds up the full durations of concurrent effects; SHARE divides the time among them.\n"
    return secrets.masked(text)


def _own(profile: Profile) -> list[tuple[str, Any]]:
    return sorted(profile.own.items(), key=lambda item: -item[1].share)


def _parts(profile: Profile) -> dict[str, float]:
    parts = {"effects": 0.0, "waiting": 0.0, "llc": sum(cost.share for cost in profile.own.values())}
    for (_, kind), cost in profile.costs.items():
        parts["waiting" if _is_idle(kind) else "effects"] += cost.share
    return parts


def _is_idle(kind: str) -> bool:
    """Whether an effect of this kind only waits."""
    return kind in EFFECTS and EFFECTS[kind].is_idle


def _percent(part: float, total: float) -> str:
    return f"{part / total:.1%}" if total else "-"


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.1f}ms"
    if seconds < 60:
        return f"{seconds:.2f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m {rest:02}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60:02}m"


# --- for programs -----------------------------------------------------------------------------


def as_json(profile: Profile) -> dict[str, Any]:
    """All figures, in milliseconds; the `share_ms` add up to `time_ms`."""
    rows = [
        {"states": list(states), "effect": kind, **_figures(cost)}
        for (states, kind), cost in profile.costs.items()
    ]
    return {
        "run": profile.name,
        "program": profile.program,
        "time_ms": _ms(profile.time),
        "parts": {name: _ms(share) for name, share in _parts(profile).items()},
        "rows": rows,
        "own": {name: _figures(cost) for name, cost in _own(profile)},
    }


def _figures(cost: Any) -> dict[str, Any]:
    mean = _ms(cost.total / cost.count) if cost.count else None
    return {"count": cost.count, "total_ms": _ms(cost.total), "mean_ms": mean, "share_ms": _ms(cost.share)}


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


# --- flame graphs -----------------------------------------------------------------------------


def stacks(profile: Profile) -> list[tuple[tuple[str, ...], float]]:
    """Stacks (program, nested states, effect) with their seconds, the most expensive first."""
    shares = [
        ((profile.program, *states, kind), cost.share) for (states, kind), cost in profile.costs.items()
    ]
    for name, cost in _own(profile):
        shares.append(
            ((profile.program, "llc") if name == "llc" else (profile.program, "llc", name), cost.share)
        )
    return [(tuple(secrets.masked(frame) for frame in stack), share) for stack, share in shares if share > 0]


def collapsed(profile: Profile) -> str:
    """Collapsed stacks, one per line with its microseconds, the input format of `flamegraph.pl`."""
    lines = []
    for stack, share in stacks(profile):
        frames = (" ".join(frame.replace(";", ",").split()) or "-" for frame in stack)
        lines.append(f"{';'.join(frames)} {round(share * 1e6)}\n")
    return "".join(lines)


def speedscope(profile: Profile) -> dict[str, Any]:
    """The file format of speedscope.app."""
    frames: dict[str, int] = {}
    samples, weights = [], []
    for stack, share in stacks(profile):
        samples.append([frames.setdefault(frame, len(frames)) for frame in stack])
        weights.append(_ms(share))
    return {
        "$schema": _SCHEMA,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": [
            {
                "type": "sampled",
                "name": profile.name,
                "unit": "milliseconds",
                "startValue": 0,
                "endValue": round(sum(weights), 3),
                "samples": samples,
                "weights": weights,
            }
        ],
        "name": profile.name,
        "activeProfileIndex": 0,
        "exporter": f"llc {__version__}",
    }


def write_flame(profile: Profile, path: str) -> None:
    """Write a flame graph file: speedscope for `*.json`, otherwise collapsed stacks. Raises UserError."""
    if path.endswith(".json"):
        text = json.dumps(speedscope(profile), ensure_ascii=False) + "\n"
    else:
        text = collapsed(profile)
    try:
        write_file(path, text.encode("utf-8", "replace"), durable=False)
    except JournalError as error:
        raise Failure("cannot-write", error.message) from None
