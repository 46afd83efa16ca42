"""The subcommands: ordinary functions with parameters annotated for Typer, grouped by theme.

A module is imported when one of its subcommands runs. Must not contain what a lower package can do.
"""
