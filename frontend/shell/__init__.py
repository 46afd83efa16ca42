"""Analysis of shell commands: lexical contexts, grammar, taint of interpolated values, hazards."""
