"""Lowering of loops and of the core language to IR."""
