"""Subcommands for the loops, tools and files of a project: one module each; see also `commands`.

A module is imported when its subcommand is executed. It must contain only the parsing of parameters and the
output of the result.
"""
