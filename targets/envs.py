"""The environments of third-party packages, one per name, under `targets/.envs`; none of them is ever ours.

The file `complete` is written last and holds what was asked for, so that a half-made or an outdated one is made again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from engines import envs as engines
from targets.layout import ENVS, ROOT, Target

VERSIONS = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"


class NotInstalled(Exception):
    """An environment that could not be made."""


def python_of(name: str) -> Path:
    """The interpreter of an environment."""
    return ENVS / name / "bin" / "python"


def install(target: Target) -> None:
    """Make the target's environments, each with Surefoot from this checkout; raises `NotInstalled`."""
    for name, file in target.envs.items():
        asked = f"{sys.version_info[:2]} surefoot[{','.join(target.extras)}]\n" + (target.folder / file).read_text()
        home = ENVS / name
        stamp = home / "complete"
        if stamp.exists() and stamp.read_text() == asked:
            continue
        shutil.rmtree(home, ignore_errors=True)
        # Our own pip fills it: not every system's Python can put a pip into a new environment.
        _do([sys.executable, "-m", "venv", "--without-pip", str(home)], name)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python_of(name)),
            "--disable-pip-version-check",
            "install",
            "-q",
        ]
        surefoot = f"{ROOT}[{','.join(target.extras)}]" if target.extras else str(ROOT)
        _do([*pip, "-r", str(target.folder / file), "-e", surefoot], name)
        stamp.write_text(asked)
    for name in target.engines:
        engines.install(engines.ENVIRONMENTS[name])


def _do(command: list[str], name: str) -> None:
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise NotInstalled(f"the environment {name} could not be made:\n{(made.stdout + made.stderr)[-2000:]}")


def versions(target: Target) -> dict[str, str]:
    """The versions that are really installed of what the target names in `packages`, and of ourselves."""
    found = _versions(Path(sys.executable), ["surefoot"])
    found["python"] = ".".join(map(str, sys.version_info[:3]))
    for name in target.envs:
        some = _versions(python_of(name), list(target.packages))
        label = f" ({name})" if len(target.envs) > 1 else ""
        found |= {f"{package}{label}": version for package, version in some.items()}
    for name in target.engines:
        found |= engines.versions(engines.ENVIRONMENTS[name])
    return found


def _versions(python: Path, names: list[str]) -> dict[str, str]:
    if not names:
        return {}
    said = subprocess.run([python, "-c", VERSIONS, *names], capture_output=True, text=True, check=True)
    read: dict[str, str] = json.loads(said.stdout)
    return read
