"""Runs seen from outside: status, history, logs, attaching, stopping, answering."""
