"""SQLite: one file, no server."""
