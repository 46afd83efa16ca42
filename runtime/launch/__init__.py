"""Starting, resuming and finishing runs: single runs, background runs, batches, workers; the Python API."""
