"""Making loops: by questions, from a description, words pinned to what a model made; rewriting files."""
