"""Declarations of tools and tasks: signatures, readers of their files, the registry.

Must not contain: calls (`expand`), or performing calls (`runtime`).
"""
