"""Graphs of loops, flows, IR and runs: one model, and its forms as text, pictures and terminal diagrams.

Must not contain: the fold of a journal (`journal.run_history`), what a program means.
"""
