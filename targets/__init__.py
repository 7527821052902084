"""Published agents, killed: each folder below is one target, measured as published and with
Surefoot.

`python -m targets` is the runner; it is no part of the package.
"""
