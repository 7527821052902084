"""The same agent with Surefoot: `engines/programs/with_script.py`, a plain script whose operations are effects."""

import os
import runpy
import sys
from pathlib import Path

PROGRAMS = str(Path(__file__).resolve().parents[2] / "engines" / "programs")

if __name__ == "__main__":
    sys.path.insert(0, PROGRAMS)
    os.environ["ARM"] = os.environ["WAY"]
    runpy.run_path(f"{PROGRAMS}/with_script.py", run_name="__main__")
