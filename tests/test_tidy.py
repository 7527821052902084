"""Taste is a test: the house rules that a machine can check, so that reviewers need not.

Each rule is a function from one file to the places that break it. `test_the_package_...` runs it over the files that
exist, and the snippets in PLANTED prove that the rule can fail: a check that nothing can break guards nothing.
"""

import ast
import gc
import importlib
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "surefoot"
Rule = Callable[[str, str], Iterable[str]]
"""(path below the package, source) -> one line for each place that breaks the rule."""

FUNCTION_LINES_MAX, MODULE_LINES_MAX, PROTOCOL_METHODS_MAX = 60, 500, 12

# Who may import whom: a folder sees itself and every tier to the left of its own.
TIERS = (
    ("core",),
    ("stores",),
    ("runtime",),
    ("effects", "receivers"),
    ("http", "inbox", "outbox", "credentials"),
    ("proxy",),
    ("integrations", "inside", "cli", "web", "demo"),
)
TIER_OF = {folder: number for number, tier in enumerate(TIERS) for folder in tier}
SEEN_BESIDES_TIERS = {
    "testing": {"core", "stores", "runtime", "effects", "receivers", ""},
    "crashtest": {"core", "testing"},
    "demo": {"testing", ""},
    "cli": {"demo", "crashtest", ""},  # commands that only start them
    "web": {""},
    "integrations": {""},
    "inside": {""},
}
"""The empty name is the package itself, that is its public names."""

CORE_MAY_NOT_IMPORT = re.compile(
    "asyncio|concurrent|ctypes|fcntl|http|io|logging|mmap|multiprocessing|os|pathlib|queue|random|sched|secrets|select"
    "|selectors|shutil|signal|socket|socketserver|sqlite3|ssl|subprocess|tempfile|threading|time|urllib"
)
DRIVER_HOMES = {
    "sqlite3": ("stores/sqlite",),
    "_sqlite3": (),
    "psycopg": ("stores/postgres", "inbox/postgres.py"),
    "psycopg_pool": ("stores/postgres",),
    "apsw": ("testing",),
    "aiosqlite": (),
    "asyncpg": (),
    "psycopg2": (),
    "sqlalchemy": (),
}
CODE_FROM_BYTES = frozenset({"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"})
CODE_FROM_BYTES_CALLS = frozenset({"eval", "exec", "yaml.load", "yaml.unsafe_load", "yaml.full_load"})

READS_THE_OUTSIDE = re.compile(
    r"time\.(time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns|clock_gettime|clock_gettime_ns|sleep)"
    r"|datetime\.datetime\.(now|utcnow|today)|datetime\.date\.today"
    r"|random\.\w+|secrets\.\w+|uuid\.(uuid1|uuid4|getnode)|os\.(environ|getenv|urandom|environb)"
)
MAY_READ_THE_OUTSIDE = ("runtime/clock.py", "cli/", "demo/", "testing/", "crashtest/")

SQL_TEXT = re.compile(
    r"\s*(SELECT\b.+\bFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\S+\s+SET|DELETE\s+FROM|WITH\s+\w+\s+AS\s*\("
    r"|(CREATE|DROP|ALTER)\s+(TEMP\s+|UNIQUE\s+)?(TABLE|INDEX|VIEW|TRIGGER))\b",
    re.DOTALL,
)
SQL_BUILT_ALLOWED: frozenset[tuple[str, str]] = frozenset()
"""(path, function) pairs that may compose a statement, from a table of constants only."""

VAGUE_NAMES = frozenset({"common", "data", "helper", "helpers", "info", "manager", "misc", "util", "utils"})


# --- what a file says -------------------------------------------------------------------------------------------


def folder_of(path: str) -> str:
    """The layer of a file: its first folder, or its own name for a module at the top."""
    first = path.split("/")[0].removesuffix(".py")
    return {"__init__": "", "__main__": "cli"}.get(first, first)


def parsed(source: str) -> ast.Module:
    """Its tree, made while no garbage of others is collected.

    That may log a traceback, for which CPython 3.11 parses a line of code, and then it refuses the tree that was under
    way (SystemError: AST constructor recursion depth mismatch).
    """
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.enable()


def imports(path: str, source: str) -> Iterator[tuple[int, str]]:
    """Every imported name with its line, absolute (`surefoot.core.run.Run`), also below TYPE_CHECKING."""
    here = ["surefoot", *path.split("/")[:-1]]
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)


def full_names(source: str) -> Iterator[tuple[ast.expr, str]]:
    """Every used name with its import undone: after `from time import time as t`, `t` is `time.time`."""
    tree = parsed(source)
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                known[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            known.update({a.asname or a.name: f"{node.module}.{a.name}" for a in node.names})

    def name_of(node: ast.expr) -> str | None:
        match node:
            case ast.Name(id=name):
                return known.get(name, name if name in ("eval", "exec", "setattr", "open", "print", "input") else None)
            case ast.Attribute(value=value, attr=attr):
                stem = name_of(value)
                return stem and f"{stem}.{attr}"
            case _:
                return None

    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and (name := name_of(node)):
            yield node, name


def docstrings(tree: ast.AST) -> set[ast.Constant]:
    """Every string that stands alone as a statement."""
    return {n.value for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def enclosing(tree: ast.AST, line: int) -> str:
    """The innermost function around a line."""
    around = [f for f in functions(tree) if f.lineno <= line <= (f.end_lineno or f.lineno)]
    return max(around, key=lambda f: f.lineno).name if around else "<module>"


# --- the rules --------------------------------------------------------------------------------------------------


def imports_only_leftwards(path: str, source: str) -> Iterator[str]:
    folder = folder_of(path)
    if folder == "":
        return
    visible = set(SEEN_BESIDES_TIERS.get(folder, ())) | {folder}
    if folder in TIER_OF:
        visible |= {other for other, tier in TIER_OF.items() if tier < TIER_OF[folder]}
    elif folder not in SEEN_BESIDES_TIERS:
        yield f"{path}: {folder!r} has no place in TIERS"
        return
    for line, name in imports(path, source):
        if name.split(".")[0] != "surefoot":
            continue
        second = f"{name}.".split(".")[1]
        target = second if second in TIER_OF or second in SEEN_BESIDES_TIERS else ""
        if target not in visible:
            yield f"{path}:{line}: {folder} imports {name}"


def core_is_pure(path: str, source: str) -> Iterator[str]:
    if folder_of(path) != "core":
        return
    for line, name in imports(path, source):
        top = name.split(".")[0]
        if CORE_MAY_NOT_IMPORT.fullmatch(top):
            yield f"{path}:{line}: core imports {top}"
        elif top not in ("surefoot", "msgspec") and top not in sys.stdlib_module_names:
            yield f"{path}:{line}: core needs {top}; it may need only msgspec and the standard library"
    for node, name in full_names(source):
        if name in ("open", "print", "input", "sys.argv", "sys.stdin", "sys.stdout", "sys.stderr"):
            yield f"{path}:{node.lineno}: core uses {name}"
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"{path}:{node.lineno}: core is not async; a flow yields commands"


def drivers_stay_at_home(path: str, source: str) -> Iterator[str]:
    for line, name in imports(path, source):
        homes = DRIVER_HOMES.get(name.split(".")[0])
        if homes is not None and not path.startswith(homes):
            yield f"{path}:{line}: imports {name}; its home is {' or '.join(homes) or 'nowhere'}"


def functions_fit(path: str, source: str) -> Iterator[str]:
    for function in functions(parsed(source)):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield f"{path}:{function.lineno}: {function.name} has {length} lines, {FUNCTION_LINES_MAX} at most"


def modules_fit(path: str, source: str) -> Iterator[str]:
    length = len(source.splitlines())
    if length > MODULE_LINES_MAX:
        yield f"{path}: {length} lines, {MODULE_LINES_MAX} at most"


def protocols_are_narrow(path: str, source: str) -> Iterator[str]:
    for node in ast.walk(parsed(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
        count = sum(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body)
        if "Protocol" in bases and count > PROTOCOL_METHODS_MAX:
            yield f"{path}:{node.lineno}: protocol {node.name} has {count} methods, {PROTOCOL_METHODS_MAX} at most"


def bytes_never_become_code(path: str, source: str) -> Iterator[str]:
    for line, name in imports(path, source):
        if name.split(".")[0] in CODE_FROM_BYTES:
            yield f"{path}:{line}: imports {name}"
    for node, name in full_names(source):
        if name in CODE_FROM_BYTES_CALLS:
            yield f"{path}:{node.lineno}: uses {name}"


def sql_stays_in_sql_files(path: str, source: str) -> Iterator[str]:
    tree = parsed(source)
    prose = docstrings(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if node not in prose and SQL_TEXT.match(text):
                yield f"{path}:{node.lineno}: SQL in a Python string: {' '.join(text.split())[:50]}"
            case ast.JoinedStr(values=parts):
                text = "".join(str(p.value) if isinstance(p, ast.Constant) else "_" for p in parts)
                if SQL_TEXT.match(text):
                    yield f"{path}:{node.lineno}: SQL in a Python string: {' '.join(text.split())[:50]}"
            case ast.Call(func=ast.Attribute(attr="execute" | "executemany" | "executescript"), args=[statement, *_]):
                made = isinstance(statement, ast.Call) and ast.unparse(statement.func)
                built = isinstance(statement, ast.JoinedStr | ast.BinOp) or (
                    made and made.endswith((".format", ".join", ".replace"))
                )
                if built and (path, enclosing(tree, node.lineno)) not in SQL_BUILT_ALLOWED:
                    yield f"{path}:{node.lineno}: a statement is put together: {ast.unparse(node)[:60]}"
            case _:
                pass


def only_the_clock_reads_the_outside(path: str, source: str) -> Iterator[str]:
    if path.startswith(MAY_READ_THE_OUTSIDE):
        return
    for node, name in full_names(source):
        if READS_THE_OUTSIDE.fullmatch(name):
            yield f"{path}:{node.lineno}: reads {name}; runtime/clock.py does that and passes the value down"


def only_apply_changes_a_status(path: str, source: str) -> Iterator[str]:
    if folder_of(path) in ("demo", "testing", "crashtest"):  # they hold other people's statuses, such as HTTP's
        return
    tree = parsed(source)
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets):
                changes = any(isinstance(t, ast.Attribute) and t.attr == "status" for t in targets)
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target, value=ast.expr()):
                changes = isinstance(target, ast.Attribute) and target.attr == "status"
            case ast.Call(func=func, args=args, keywords=keywords):
                called = ast.unparse(func).split(".")[-1]
                by_name = any(isinstance(a, ast.Constant) and a.value == "status" for a in args[1:2])
                changes = (called in ("replace", "__replace__") and any(k.arg == "status" for k in keywords)) or (
                    called in ("setattr", "__setattr__", "force_setattr") and by_name
                )
            case _:
                continue
        if changes and not (folder_of(path) == "core" and re.match(r"apply(_|$)", enclosing(tree, node.lineno))):
            yield f"{path}:{node.lineno}: a status changes outside apply(): {ast.unparse(node)[:60]}"


def nothing_is_left_to_do(path: str, source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        found = re.search(r"\b(TODO|FIXME|XXX)\b", token.string)
        if found and token.type in (tokenize.COMMENT, tokenize.STRING):
            yield f"{path}:{token.start[0]}: {found[0]}"


def names_say_something(path: str, source: str) -> Iterator[str]:
    if VAGUE_NAMES & {part.removesuffix(".py") for part in path.split("/")}:
        yield f"{path}: a file name that says nothing"


def undocumented(names: dict[str, Any], documentation: str) -> Iterator[str]:
    """Public names without a docstring of their own, or that no document mentions in code."""
    code = " ".join(re.findall(r"```.*?```|`[^`\n]+`", documentation, re.DOTALL))
    for name, value in names.items():
        if isinstance(value, type) or callable(value):
            text = getattr(value, "__doc__", None) or ""
            if not text.strip() or text.startswith(f"{name}("):  # the second is what @dataclass writes
                yield f"{name} has no docstring"
        if not re.search(rf"\b{re.escape(name)}\b", code):
            yield f"{name} is not in README.md or docs/"


def statuses_written_into_sql(path: str, source: str) -> Iterator[str]:
    for found in re.finditer(r"\bSET\b((?!\bWHERE\b)[^;])*?\bstatus\s*=\s*'", source, re.IGNORECASE):
        line = source.count("\n", 0, found.end()) + 1
        yield f"{path}:{line}: a statement chooses a status; apply() does, and the statement stores it"


# --- each rule, over the files that exist -----------------------------------------------------------------------


def broken(rule: Rule, pattern: str = "*.py", root: Path = PACKAGE) -> list[str]:
    files = [f for f in sorted(root.rglob(pattern)) if not {".envs", "__pycache__"} & set(f.parts)]
    return [hit for file in files for hit in rule(file.relative_to(root).as_posix(), file.read_text("utf-8"))]


def test_a_module_imports_only_leftwards() -> None:
    assert broken(imports_only_leftwards) == []


def test_core_needs_only_msgspec_and_does_no_io() -> None:
    assert broken(core_is_pure) == []


def test_a_database_driver_is_imported_in_its_own_folder_and_nowhere_else() -> None:
    assert broken(drivers_stay_at_home) == []


@pytest.mark.parametrize("folder", ["src/surefoot", "tests", "bench", "frameworks", "engines", "targets"])
def test_functions_and_modules_fit_on_their_page(folder: str) -> None:
    assert broken(functions_fit, root=ROOT / folder) + broken(modules_fit, root=ROOT / folder) == []


def test_a_protocol_has_twelve_methods_at_most() -> None:
    assert broken(protocols_are_narrow) == []


def test_no_bytes_are_ever_turned_into_code() -> None:
    assert broken(bytes_never_become_code) == []


def test_sql_lives_in_sql_files_and_is_never_put_together() -> None:
    assert broken(sql_stays_in_sql_files) == []


def test_only_the_clock_reads_time_chance_and_environment() -> None:
    assert broken(only_the_clock_reads_the_outside) == []


def test_a_status_changes_only_in_apply() -> None:
    assert broken(only_apply_changes_a_status) + broken(statuses_written_into_sql, "*.sql") == []


def test_nothing_is_left_to_do() -> None:
    assert broken(nothing_is_left_to_do) == []


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert broken(names_say_something) == []


def test_every_public_name_is_documented() -> None:
    surefoot = importlib.import_module("surefoot")
    public = [name for name in getattr(surefoot, "__all__", ()) if not name.startswith("__")]
    texts = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    documentation = "\n".join(text.read_text("utf-8") for text in texts if text.exists())
    assert list(undocumented({name: getattr(surefoot, name) for name in public}, documentation)) == []


def test_importing_surefoot_loads_no_driver_no_event_loop_and_nothing_foreign_but_msgspec() -> None:
    # msgspec looks for typing_extensions, which a program need not have, and which loads much itself
    program = "import sys; sys.modules['typing_extensions'] = None; old = set(sys.modules); import surefoot; "
    program += "print(*set(sys.modules) - old)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    tops = {name.split(".")[0] for name in loaded.stdout.split()}
    foreign = {top for top in tops if top not in sys.stdlib_module_names} - {"surefoot", "msgspec"}
    slow = {"sqlite3", "_sqlite3", "asyncio", "inspect", "dataclasses", "hashlib", "string", "logging", "pathlib"}
    assert foreign | (tops & slow) == set()


# --- each rule, broken on purpose -------------------------------------------------------------------------------

LONG_FUNCTION = "def f():\n" + "    pass\n" * FUNCTION_LINES_MAX
WIDE_PROTOCOL = "class Store(Protocol[T]):\n" + "".join(f"    def m{n}(self): ...\n" for n in range(13))

PLANTED: tuple[tuple[Rule, str, str], ...] = (
    (imports_only_leftwards, "core/run.py", "from surefoot.stores.base import Store"),
    (imports_only_leftwards, "core/run.py", "from ..stores import base"),
    (imports_only_leftwards, "stores/base.py", "import surefoot.runtime.clock"),
    (imports_only_leftwards, "runtime/drive.py", "def f():\n    from surefoot.effects import effect"),
    (imports_only_leftwards, "effects/api.py", "from surefoot.receivers import get"),
    (imports_only_leftwards, "runtime/worker.py", "from surefoot.testing import clock"),
    (imports_only_leftwards, "runtime/worker.py", "from surefoot import Surefoot"),
    (imports_only_leftwards, "testing/suite.py", "from surefoot.cli import main"),
    (imports_only_leftwards, "crashtest/kill.py", "from surefoot.runtime import drive"),
    (imports_only_leftwards, "plumbing/pipe.py", "x = 1"),
    (core_is_pure, "core/run.py", "import time"),
    (core_is_pure, "core/run.py", "from os import path"),
    (core_is_pure, "core/run.py", "import attrs"),
    (core_is_pure, "core/run.py", "async def f(): ..."),
    (core_is_pure, "core/run.py", "open('x')"),
    (core_is_pure, "core/run.py", "import sys\nsys.stderr.write('x')"),
    (drivers_stay_at_home, "runtime/worker.py", "import sqlite3"),
    (drivers_stay_at_home, "stores/sqlite/store.py", "import psycopg.rows"),
    (drivers_stay_at_home, "stores/sqlite/store.py", "import apsw"),
    (functions_fit, "core/run.py", LONG_FUNCTION),
    (modules_fit, "core/run.py", "x = 1\n" * (MODULE_LINES_MAX + 1)),
    (protocols_are_narrow, "stores/base.py", WIDE_PROTOCOL),
    (bytes_never_become_code, "core/run.py", "from pickle import loads"),
    (bytes_never_become_code, "core/run.py", "import yaml as y\ny.load(text)"),
    (bytes_never_become_code, "core/run.py", "eval(text)"),
    (sql_stays_in_sql_files, "stores/sqlite/store.py", "QUERY = 'SELECT id FROM runs'"),
    (sql_stays_in_sql_files, "stores/sqlite/store.py", "QUERY = f'UPDATE {table} SET x = 1'"),
    (sql_stays_in_sql_files, "stores/sqlite/store.py", "c.execute(f'PRAGMA {name}')"),
    (sql_stays_in_sql_files, "stores/sqlite/store.py", "c.executemany(QUERY + ' LIMIT 1', rows)"),
    (sql_stays_in_sql_files, "stores/sqlite/store.py", "c.execute(QUERY.format(table))"),
    (only_the_clock_reads_the_outside, "runtime/drive.py", "import time\ntime.sleep(1)"),
    (only_the_clock_reads_the_outside, "runtime/drive.py", "from time import monotonic as m\nclock = m"),
    (only_the_clock_reads_the_outside, "stores/base.py", "from datetime import datetime\ndatetime.now()"),
    (only_the_clock_reads_the_outside, "stores/base.py", "import datetime as d\nd.date.today()"),
    (only_the_clock_reads_the_outside, "core/ids.py", "import uuid\nuuid.uuid4()"),
    (only_the_clock_reads_the_outside, "effects/api.py", "import random\nrandom.random()"),
    (only_the_clock_reads_the_outside, "effects/api.py", "import os\nos.environ['X']"),
    (only_apply_changes_a_status, "stores/base.py", "effect.status = new"),
    (only_apply_changes_a_status, "core/flows.py", "def resume(run):\n    return replace(run, status=new)"),
    (only_apply_changes_a_status, "runtime/worker.py", "def apply(run):\n    run.status = new"),
    (only_apply_changes_a_status, "core/flows.py", "object.__setattr__(run, 'status', new)"),
    (statuses_written_into_sql, "stores/sqlite/queries.sql", "UPDATE effects\nSET fence = 1, status = 'parked';"),
    (nothing_is_left_to_do, "core/run.py", "x = 1  # TO" + "DO: later"),
    (names_say_something, "core/utils.py", ""),
)

CLEAN: tuple[tuple[Rule, str, str], ...] = (
    (imports_only_leftwards, "effects/api.py", "from ..core.run import Run\nfrom surefoot.runtime import context"),
    (imports_only_leftwards, "demo/main.py", "from surefoot import Surefoot\nfrom surefoot.testing import world"),
    (core_is_pure, "core/run.py", "import hashlib, msgspec\nfrom uuid import UUID"),
    (drivers_stay_at_home, "stores/sqlite/store.py", "import sqlite3"),
    (functions_fit, "core/run.py", LONG_FUNCTION.removesuffix("    pass\n")),
    (sql_stays_in_sql_files, "stores/sqlite/store.py", "c.execute('BEGIN IMMEDIATE')\nc.execute(queries['claim'], x)"),
    (sql_stays_in_sql_files, "stores/base.py", "def f():\n    'SELECT this FROM that, in words.'"),
    (only_the_clock_reads_the_outside, "runtime/clock.py", "import time\ntime.time()"),
    (only_the_clock_reads_the_outside, "runtime/drive.py", "self.clock.now()\nrun.time.time"),
    (only_apply_changes_a_status, "core/effect.py", "def apply(effect, event):\n    replace(effect, status=new)"),
    (only_apply_changes_a_status, "core/run.py", "def apply_run(run, do):\n    replace(run, status=new)"),
    (statuses_written_into_sql, "stores/sqlite/queries.sql", "UPDATE effects SET status = :status WHERE status = 'x';"),
)


@pytest.mark.parametrize(("rule", "path", "source"), PLANTED, ids=lambda value: getattr(value, "__name__", None))
def test_a_rule_finds_what_is_planted(rule: Rule, path: str, source: str) -> None:
    assert list(rule(path, source))


@pytest.mark.parametrize(("rule", "path", "source"), CLEAN, ids=lambda value: getattr(value, "__name__", None))
def test_a_rule_lets_clean_code_pass(rule: Rule, path: str, source: str) -> None:
    assert list(rule(path, source)) == []


def test_an_undocumented_name_is_found() -> None:
    def bare() -> None: ...

    def told() -> None:
        """Say what it does."""

    assert list(undocumented({"bare": bare}, "`bare`")) == ["bare has no docstring"]
    assert list(undocumented({"told": told}, "told, but not in code")) == ["told is not in README.md or docs/"]
    assert list(undocumented({"told": told}, "```python\ntold()\n```")) == []
