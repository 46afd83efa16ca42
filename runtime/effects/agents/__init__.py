"""Agents: programs that work on a project by themselves, and the events that they write."""
