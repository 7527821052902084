"""Adapters for frameworks: each imports its framework only when it is used, and adds nothing to `import surefoot`."""
