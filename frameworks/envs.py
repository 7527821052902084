"""One environment per framework, below frameworks/.envs: their dependencies disagree with each other.

Surefoot itself comes in by a path file, so that the checkout is what is measured, and so that no build is needed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from .layout import HERE, ROOT, Framework

ENVS = HERE / ".envs"
TOOLS = ("msgspec>=0.19", "pytest>=8.2", "pytest-timeout>=2.3", "pytest-asyncio>=0.24")
ASK_VERSIONS = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in json.loads(sys.argv[1]):
    try: found[name] = version(name)
    except PackageNotFoundError: pass
print(json.dumps(found))
"""


def python_of(framework: Framework, version: str) -> Path:
    """The interpreter of the environment, made or made again when what is asked for has changed."""
    folder = ENVS / (framework.name if version == "newest" else f"{framework.name}-{version}")
    python = folder / "bin" / "python"
    wanted = framework.requirements(version).read_text("utf-8")
    digest = hashlib.sha256("\n".join([wanted, *TOOLS, sys.version]).encode()).hexdigest()
    stamp = folder / "complete"
    if stamp.exists() and stamp.read_text() == digest:
        return python
    print(f"installing {folder.relative_to(ROOT)}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    # Debian's python3 comes without ensurepip; the pip of this environment installs into that one instead.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--quiet", "install"]
    file = framework.requirements(version)
    done = subprocess.run(
        [*pip, "--no-compile", *TOOLS, "-r", str(file)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise SystemExit(f"{file.relative_to(ROOT)} could not be installed:\n{done.stdout[-3000:]}")
    site = next((folder / "lib").glob("python3*/site-packages"))
    (site / "surefoot-checkout.pth").write_text(f"{ROOT / 'src'}\n{ROOT}\n")
    stamp.write_text(digest)
    return python


def versions_in(python: Path, packages: tuple[str, ...]) -> dict[str, str]:
    """The installed versions of these packages."""
    command = [python, "-c", ASK_VERSIONS, json.dumps(packages)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def megabytes(python: Path) -> int:
    """What the environment takes on disk."""
    return sum(f.lstat().st_size for f in python.parents[1].rglob("*") if not f.is_symlink()) // 1_000_000
