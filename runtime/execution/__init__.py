"""Execution of a run from its start to its end: the driver, its parameters, and its ways to stop."""
