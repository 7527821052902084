"""Engines under which Surefoot was really run: each is killed in the gap as published, and with our effect inside."""
