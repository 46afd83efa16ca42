"""Loops: schema, paradigms, composition of files, the little-loops dialect, checks.

Must not contain: lowering to IR (`lower`), or access to files except through `source.files`.
"""
