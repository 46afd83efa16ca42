"""`llc ui`: a local page of the runs of a project, served to the user's own browser.

Owns: access control, routes, and the live form of a report. Must not contain: the fold of a journal, what is
known of a run (`report.model`, `inspection`), how a question is answered or a run is stopped (`inspection`).
"""
