"""The journal of a run: event kinds, encoding, appending, and the history folded from it."""
