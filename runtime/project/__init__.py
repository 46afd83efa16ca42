"""A project and its settings: configuration, loading and caching of programs, validation."""
