"""The run store: folders, locks, checkpoints, program files, retention."""
