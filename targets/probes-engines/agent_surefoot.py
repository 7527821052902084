"""The same agent with Surefoot: the probes' own."""

import os
import runpy
import sys
from pathlib import Path

PROBES = str(Path(__file__).resolve().parents[1] / "probes")

if __name__ == "__main__":
    sys.path.insert(0, os.environ.get("PROBES", PROBES))
    runpy.run_path(f"{PROBES}/agent_surefoot.py", run_name="__main__")
