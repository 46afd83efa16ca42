"""Subcommands for programs and runs: one module each, a function with parameters annotated for Typer.

A module is imported when its subcommand is executed. It must contain only the parsing of parameters and the
output of the result.
"""
