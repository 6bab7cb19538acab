"""Images, boards and connections: building, flashing, sessions, debugging."""
