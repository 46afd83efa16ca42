"""Sizes of the measurements: large enough for figures, or minimal, to check that the benchmarks work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Rounds are turns of interleaved contestants; the other fields are the sizes of each turn."""

    steps: int = 40
    step_rounds: int = 25
    run_steps: int = 200
    run_rounds: int = 9
    start_rounds: int = 25
    subcommand_rounds: int = 9
    compile_rounds: int = 5
    states: int = 10_000
    machine_rounds: int = 9
    iterations: tuple[int, int] = (10_000, 100_000)
    memory_rounds: int = 3
    output_bytes: tuple[int, int] = (2_000_000, 100_000_000)
    output_rounds: int = 7
    output_step_bytes: int = 1_000_000
    output_steps: int = 10
    text_bytes: int = 1_000_000
    read_rounds: int = 9
    resumed_steps: int = 10_000
    resume_rounds: int = 9
    looked_steps: int = 50_000
    growing_steps: int = 1_000
    files: int = 10_000
    index_rounds: int = 3
    search_rounds: int = 9
    graph_states: tuple[int, int, int] = (10, 70, 300)
    graph_rounds: int = 5
    report_effects: tuple[int, int] = (100, 10_000)
    report_rounds: int = 3
    report_moves: int = 100
    page_runs: int = 1_000
    page_viewers: int = 50
    page_events: int = 100
    page_rounds: int = 9
    program_rounds: int = 9
    program_part: int = 1
    general_rounds: int = 5
    built_items: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    many_runs: int = 1_000
    many_seconds: float = 30
    many_waits: float = 1
    many_rounds: int = 2
    against_commands: int = 100
    against_rounds: int = 11
    against_steps: int = 300
    against_states: int = 3_000
    installs_peers: bool = True
    peer_steps: int = 60
    peer_rounds: int = 5
    peer_growing_steps: int = 1_000
    peer_run_growing_steps: int = 300
    peer_events: int = 20_000
    history_steps: tuple[int, ...] = (100, 300, 1_000, 3_000, 10_000)
    history_rounds: int = 3
    keeps_pictures: bool = True
    cluster_effects: int = 100
    cluster_rounds: int = 15
    cluster_kills: int = 20
    cluster_runs: int = 300
    cluster_workers: int = 3
    cluster_idle_seconds: float = 10
    cluster_parked: int = 10_000
    cluster_outages: tuple[float, ...] = (1, 10, 60)


FULL = Sizes()
TINY = Sizes(
    steps=2,
    step_rounds=1,
    run_steps=2,
    run_rounds=1,
    start_rounds=1,
    subcommand_rounds=1,
    compile_rounds=1,
    states=40,
    machine_rounds=1,
    iterations=(10, 100),
    memory_rounds=1,
    output_bytes=(2_000_000, 3_000_000),
    output_rounds=1,
    output_step_bytes=100_000,
    output_steps=2,
    text_bytes=2_000,
    read_rounds=1,
    resumed_steps=20,
    resume_rounds=1,
    looked_steps=60,
    growing_steps=10,
    files=20,
    index_rounds=1,
    search_rounds=1,
    graph_states=(5, 10, 20),
    graph_rounds=1,
    report_effects=(4, 20),
    report_rounds=1,
    report_moves=2,
    page_runs=3,
    page_viewers=2,
    page_events=2,
    page_rounds=1,
    program_rounds=1,
    program_part=1000,
    general_rounds=1,
    built_items=(10, 100),
    many_runs=10,
    many_seconds=1,
    many_waits=0.1,
    many_rounds=1,
    against_commands=2,
    against_rounds=1,
    against_steps=2,
    against_states=8,
    peer_steps=20,
    peer_rounds=1,
    peer_growing_steps=10,
    peer_run_growing_steps=10,
    peer_events=10,
    history_steps=(10, 20),
    history_rounds=1,
    keeps_pictures=False,
    cluster_effects=2,
    cluster_rounds=1,
    cluster_kills=1,
    cluster_runs=10,
    cluster_workers=1,
    cluster_idle_seconds=1,
    cluster_parked=20,
    cluster_outages=(1,),
)
