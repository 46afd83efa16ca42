"""The interface to the operating system: files, clock, processes, locks, environment."""
