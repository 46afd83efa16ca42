"""Reports of runs: the model of a run (steps with deltas), and its output as HTML, trace events and JSON.

Must not contain the fold of a journal (`journal.run_history`) or the re-execution of a recorded machine
(`recordings.timeline`). `assets/` contains the scripts and the style sheet of the page.
"""
