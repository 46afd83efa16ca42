"""Linking of loops and flows from several files to one program."""
