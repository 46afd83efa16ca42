"""`llc ui`: a local web server for the runs of a project.

Owns access control, routes, and live updates of a report. Must not contain the fold of a journal, the model
of a run (`report.model`, `inspection`), or the actions on questions and runs (`inspection`).
"""
