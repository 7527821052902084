"""What published agent frameworks do when they are killed, as published and with Surefoot; never part of the wheel.

Each framework has a folder, an environment of its own and a committed result; `python -m frameworks NAME` measures one.
How a folder is laid out, and what is counted, stands in docs/frameworks/README.md.
"""
