"""The run store: runs of a project, scope locks, checkpoints, program files, state files, retention.

Must not contain: the meaning of a run's events (`journal`) or how a run is driven (`execution`).
"""
