"""``python -m surefoot.demo`` is the whole program; see :mod:`surefoot.demo.main` for its options."""

from surefoot.demo.main import app

app()
