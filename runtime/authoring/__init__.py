"""Creation of loops: options, questions, descriptions, ready loops, pins; formatting and import of files."""
