"""What people see and type: the screen, progress, the session."""
