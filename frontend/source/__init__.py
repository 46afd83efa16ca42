"""Source files, YAML and XML trees with spans, and the schema engine.

Must not contain: schemas of particular files, or any language that is built on them.
"""
