"""Interpolation templates: parsing, and quoting in shell commands.

Must not contain: the positions of texts in a file, or lowering of templates (`lower`).
"""
