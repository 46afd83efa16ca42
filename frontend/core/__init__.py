"""The core language after expansion: nodes, scopes, library, macros by syntax rules, checks."""
