"""A run from its start to its end: the driver, what it is started with, and how it stops."""
