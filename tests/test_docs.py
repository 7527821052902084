"""The documents are part of the program: links lead somewhere, and what a README program prints is what it says.

A ```python block that is followed by a ```text block, before any other heading, is run, and its output is compared.
If a ```console block follows instead, each `$` line in it is run in one folder, so that a program can be run twice.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
REQUIRED = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
FENCE = re.compile(r"(?ms)^(?P<bar>`{3,}|~{3,})(?P<language>[\w+-]*)[^\n]*\n(?P<body>.*?)^(?P=bar)[ \t]*$")
INLINE_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^\s<>)]+)>?(?:\s+\"[^\"]*\")?\)")
REFERENCE_LINK = re.compile(r"^\[[^\]]+\]:\s+<?(\S+?)>?\s*$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
RUN_SECONDS_MAX = 60


def documents(root: Path = ROOT) -> list[Path]:
    return [root / name for name in REQUIRED] + sorted((root / "docs").glob("**/*.md"))


# --- links ------------------------------------------------------------------------------------------------------


def without_code(text: str) -> str:
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """The anchors of a document, made from its headings as GitHub makes them, and those set by hand."""
    bare = FENCE.sub("", text)
    found = set(re.findall(r"<a\s+(?:id|name)=[\"']([^\"']+)[\"']", bare))
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", bare, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        stem = slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        number = 0
        while slug in found:
            number += 1
            slug = f"{stem}-{number}"
        found.add(slug)
    return found


def broken_links(document: Path) -> Iterator[str]:
    text = without_code(document.read_text("utf-8"))
    for target in [*INLINE_LINK.findall(text), *REFERENCE_LINK.findall(text)]:
        if ELSEWHERE.match(target):
            continue
        place, _, anchor = target.partition("#")
        file = (document.parent / place).resolve() if place else document
        if not file.exists():
            yield f"{document.name}: {target} leads to no file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text("utf-8")):
            yield f"{document.name}: {target} leads to no heading"


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    assert document.exists(), f"{document.name} is missing; a checkout has {', '.join(REQUIRED)}"
    assert list(broken_links(document)) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Two words, `code`\n[a](gone.md) [b](#two-words-code) [c](#three) [d](https://x.org) `[e](no)`\n")
    assert list(broken_links(page)) == ["page.md: gone.md leads to no file", "page.md: #three leads to no heading"]


# --- programs ---------------------------------------------------------------------------------------------------


def programs(text: str) -> Iterator[tuple[int, str, str, str]]:
    """(line, program, kind of the output block, output) for each program whose output is shown."""
    fences = list(FENCE.finditer(text))
    for this, following in pairwise(fences):
        between = text[this.end() : following.start()]
        if this["language"] != "python" or following["language"] not in ("text", "console"):
            continue
        if not re.search(r"^#{1,6} ", between, re.MULTILINE):
            line = text.count("\n", 0, this.start()) + 1
            yield line, this["body"], following["language"], following["body"]


def printed(command: list[str], folder: Path) -> str:
    """What a terminal shows for a command: both streams in order, and the shell's word for a SIGKILL."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "COLUMNS": "100"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_SECONDS_MAX,
    )
    return done.stdout + ("Killed\n" if done.returncode == -signal.SIGKILL else "")


def transcript(program: str, kind: str, shown: str, folder: Path) -> str:
    """The output block as it really is: for `console`, every `$` line with what it prints now."""
    named = re.match(r"#\s*(\w+\.py)\s*\n", program)
    file = folder / (named[1] if named else "program.py")
    file.write_text(program, "utf-8")
    if kind == "text":
        return printed([sys.executable, file.name], folder)
    lines: list[str] = []
    for command in re.findall(r"^\$ (.+)$", shown, re.MULTILINE):
        words = shlex.split(command)
        starts = {"python": [sys.executable], "surefoot": [str(Path(sys.executable).parent / "surefoot")]}
        assert words[0] in starts, f"only {' and '.join(starts)} may be run from a document, not {words[0]!r}"
        lines += [f"$ {command}\n", printed([*starts[words[0]], *words[1:]], folder)]
    return "".join(lines)


def readme_programs() -> list[tuple[int, str, str, str]]:
    readme = ROOT / "README.md"
    return list(programs(readme.read_text("utf-8"))) if readme.exists() else []


def test_the_readme_has_a_program_with_its_output() -> None:
    assert readme_programs(), "README.md needs a ```python block followed by a ```console or ```text block"


@pytest.mark.parametrize("example", readme_programs(), ids=lambda example: f"line-{example[0]}")
def test_a_readme_program_prints_what_the_readme_shows(example: tuple[int, str, str, str], tmp_path: Path) -> None:
    _, program, kind, shown = example
    assert transcript(program, kind, shown, tmp_path).rstrip() == shown.rstrip()


def test_a_program_is_run_as_a_reader_would_run_it(tmp_path: Path) -> None:
    text = (
        "```python\n# twice.py\nimport os, pathlib\nmark = pathlib.Path('mark')\nprint(mark.exists())\n"
        "if not mark.exists():\n    mark.touch()\n    os.kill(os.getpid(), 9)\n```\nprints\n"
        "```console\n$ python twice.py\nFalse\nKilled\n$ python twice.py\nTrue\n```\n"
        "```python\nprint(1)\n```\n## Another heading\n```text\n2\n```\n"
    )
    ((line, program, kind, shown),) = programs(text)
    assert (line, kind) == (1, "console")
    assert transcript(program, kind, shown, tmp_path) == shown


def test_a_program_that_prints_something_else_is_found(tmp_path: Path) -> None:
    assert transcript("print('one')\n", "text", "two\n", tmp_path) == "one\n"
