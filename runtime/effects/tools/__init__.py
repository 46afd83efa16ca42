"""Tools of a project: commands, built-in ones, and those of MCP servers."""
