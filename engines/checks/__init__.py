"""What the rows do not show of each engine, as programs that run in its environment and print ALL RIGHT."""
