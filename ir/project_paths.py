"""Names of a project's files, for the compiler and the runtime alike; without imports, for start-up."""

from __future__ import annotations

# The folder of a project's loops, flows and settings.
LOOPS = ".loops"
# Settings of the project and declarations of tools. No loop can have one of these names.
CONFIG = "config.yaml"
TOOLS = "tools.yaml"
LOOP_SUFFIXES = (".yaml", ".yml")
FLOW_SUFFIX = ".sexp"
SOURCE_SUFFIXES = (*LOOP_SUFFIXES, FLOW_SUFFIX)
# IR text: a program, but no source that a name can mean.
IR_SUFFIX = ".ir"
