"""PostgreSQL: one database for the workers of many machines."""
