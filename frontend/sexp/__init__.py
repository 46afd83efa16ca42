"""S-expressions as data: lexer, reader, printer, formatter, bracket recovery.

Must not contain: the meaning of data (`core`, `expand`).
"""
