"""Expansion of S-expressions to the core language."""
