"""Runs as records: replayed, compared, kept as cases, forked, looked through."""
