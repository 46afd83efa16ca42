"""Interpolation templates: parsing, and quoting of variables in shell commands.

Must not contain: the positions of texts in a file, or lowering of templates (`lower`).
"""
