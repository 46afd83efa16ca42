"""What a run leaves on disk, and coming back from it: folders, locks, journal, checkpoints, secrets."""
