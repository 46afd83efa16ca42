"""S-expressions: lexer, reader, printer, formatter, bracket recovery."""
