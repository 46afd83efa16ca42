"""File trees of a run: what the project's files were before and after an effect."""
