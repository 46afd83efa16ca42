"""Declarations of tasks and tools: signatures, files, the registry."""
