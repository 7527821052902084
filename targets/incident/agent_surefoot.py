"""The same agent on Surefoot: `surefoot/demo/agents/durable.py`; model call and reads are steps, writes are effects."""

import runpy
from importlib.util import find_spec
from pathlib import Path

spec = find_spec("surefoot.demo")
assert spec is not None and spec.origin is not None
AGENTS = str(Path(spec.origin).parent)

if __name__ == "__main__":
    import sys

    sys.path.insert(0, AGENTS)
    runpy.run_module("agents.durable", run_name="__main__", alter_sys=True)
