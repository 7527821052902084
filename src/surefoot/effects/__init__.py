"""What users write to act on the world: `@effect`, its lookup, its compensation, and contracts that need code."""
