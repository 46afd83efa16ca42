"""Reports of runs: a run as steps with deltas, and its forms as a page, as trace events and as JSON.

Must not contain: the fold of a journal (`journal.run_history`), how a recorded machine is executed again
(`recordings.timeline`). `assets/` holds the scripts and the style of the page.
"""
