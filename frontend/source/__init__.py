"""Source files and documents: reading, YAML and XML trees with spans, the schema engine.

Must not contain: schemas of particular files, or any language built on them.
"""
