"""Execution of generated functions: the library of an image, fuel, and the tier that a machine runs on."""
