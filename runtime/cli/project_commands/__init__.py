"""Subcommands for the programs, tools and files of a project: one module each, imported when it is performed.

Those that run programs or look at runs are in `commands`. Must not contain: what a subcommand does beyond
reading its parameters and showing its result.
"""
