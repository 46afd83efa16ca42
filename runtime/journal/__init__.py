"""Journal of a run: event kinds, encoding, appending, reading, and the fold to a history."""
