"""Starting, resuming and finishing runs: single, in the background, in batches."""
