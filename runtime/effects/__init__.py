"""What a run asks of the world, done: shells, agents, models, tools, people, timers."""
