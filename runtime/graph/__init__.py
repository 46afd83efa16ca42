"""Graphs of loops, flows, IR and runs: one model, rendered as text, pictures and terminal diagrams.

Must not contain: the fold of a journal (`journal.run_history`), semantics of programs.
"""
