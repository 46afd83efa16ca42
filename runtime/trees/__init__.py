"""File trees of a run: snapshots of the project's files before and after effects."""
