"""Performers of effects: shells, agents, models, tools, people, timers."""
