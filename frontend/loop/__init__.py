"""Loops in YAML: schema, paradigms, desugaring to states, checks."""
