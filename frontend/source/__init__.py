"""Source files and documents: reading, YAML and XML trees with spans, scalar values."""
