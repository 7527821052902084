"""A Python script started from a fork server: imported modules are there already, everything else is as if new.

Loaded by path into the agent's own interpreter, so it imports the standard library alone.
"""

import importlib
import io
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn


def preload(modules: Sequence[str]) -> None:
    """Import these once, in the server."""
    for module in modules:
        importlib.import_module(module)


def run(say: Callable[[str], None], argv: list[str], cwd: str, env: Mapping[str, str], output: str) -> NoReturn:
    """In the child: run `argv` (a script, or `-m` and a module) as the interpreter would, in a session of its own.

    Exits as the interpreter would: 0, the code of SystemExit, or 1 with a traceback.
    """
    os.setsid()
    say("ready")
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for target, number in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(target, number)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8", "replace")
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", line_buffering=True)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    code: object = 0
    try:
        if argv[0] == "-m":
            sys.argv = argv[1:]
            sys.path.insert(0, cwd)
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = argv
            sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    number = 0 if code is None else code if isinstance(code, int) else 1
    _finish()
    os._exit(number & 255)


def _finish() -> None:
    import atexit
    import threading

    try:
        threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
