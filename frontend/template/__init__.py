"""Interpolation templates: parsing and shell quoting."""
