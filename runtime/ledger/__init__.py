"""Ledgers: usage of agents and models by one user, per day, project and account (`spec/budget.md`)."""
