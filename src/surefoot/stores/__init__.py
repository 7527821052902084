"""Where records live: one protocol, several databases."""
