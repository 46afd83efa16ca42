"""llc: compile automation loops and workflows to states and jumps, and run them."""

__version__ = "0.1.0"
