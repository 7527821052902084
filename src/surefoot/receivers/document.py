"""Makes `docs/catalog.md` from the data, so that what people read cannot differ from what programs use."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby

from .describe import describe, promise
from .load import load, names
from .model import Receiver
from .words import CLASSES, Category

HEAD = """\
# What services do with a repeat

Generated from the package's data by `python -m surefoot.receivers docs/catalog.md`; do not edit it by hand. Each entry
is what `receivers.get(id)` gives: facts with their sources, and the contract that follows from them. *Relied on* is
what is left of a promise after the margins. What no source says is not relied on.
[Which contract does my service have?](receivers.md) helps with services that are not here.
"""


def document() -> str:
    """The whole document."""
    found = [load(name) for name in names()]
    classes = Counter(receiver.class_ for receiver in found)
    parts = [
        HEAD,
        f"{len(found)} receivers.\n",
        "## Classes\n",
        "| class | receivers | what it does |",
        "|---|---|---|",
    ]
    parts += [f"| `{class_}` | {classes[class_]} | {_cell(text)} |" for class_, text in CLASSES.items()]
    for category in Category:
        members = [receiver for receiver in found if receiver.category is category]
        if members:
            title = category.value.replace("_", " ").capitalize()
            parts += ["", f"## {title}", "", "| id | class | contract |", "|---|---|---|"]
            parts += [f"| [`{r.id}`](#{_anchor(r)}) | `{r.class_}` | {_cell(promise(r))} |" for r in members]
            parts += [line for receiver in members for line in _section(receiver)]
    return "\n".join(parts) + "\n"


def _section(receiver: Receiver) -> list[str]:
    lines = ["", f"### {receiver.id}", ""]
    for heading, group in groupby(describe(receiver), key=lambda line: line.heading):
        texts = [_text(line.text) for line in group]
        if len(texts) == 1:
            lines.append(f"- **{heading}**: {texts[0]}")
        else:
            lines += [f"- **{heading}**", *(f"  - {text}" for text in texts)]
    return lines


def _anchor(receiver: Receiver) -> str:
    return re.sub(r"[^\w\- ]", "", receiver.id.lower()).replace(" ", "-")


def _text(text: str) -> str:
    """As it stands, with what Markdown would read as markup escaped."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


def _cell(text: str) -> str:
    return _text(text)
