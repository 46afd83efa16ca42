"""Ledgers of what agents and models use: per day, project and account of one user (`spec/budget.md`)."""
