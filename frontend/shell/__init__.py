"""Analysis of shell commands: quoting contexts of variables, grammar, taint analysis, hazards.

Must not contain: the `${…}` syntax of templates (`template`).
"""
