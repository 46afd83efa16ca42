"""Declarations of tools and tasks: signatures, the readers of their files, the registry.

Must not contain: calls (`expand`), or performing them (`runtime`).
"""
