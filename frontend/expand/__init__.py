"""Expansion of S-expressions to the core language: a context, form handlers, and the engine.

Modules in import order: `expansion`, the form handlers, `bodies`, `expander`, `program`. Must not contain:
files of loops (`link`), or states (`lower`).
"""
