"""Run store: the runs of a project, scope locks, checkpoints, program files, state files and retention.

Must not contain: the meaning of events (`journal`) or the execution of runs (`execution`).
"""
