"""Tools of a project: commands, Python functions, built-in tools, and tools of MCP servers."""
