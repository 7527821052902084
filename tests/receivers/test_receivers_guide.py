"""Every program in docs/receivers.md prints what the page shows, and the page names what can be said."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from surefoot import receivers
from surefoot.receivers import Class, Receiver
from tests.test_docs import programs, transcript

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "receivers.md").read_text("utf-8")


@pytest.mark.parametrize("example", list(programs(GUIDE)), ids=lambda example: f"line-{example[0]}")
def test_a_program_of_the_guide_prints_what_the_guide_shows(example: tuple[int, str, str, str], tmp_path: Path) -> None:
    _, program, kind, shown = example
    assert transcript(program, kind, shown, tmp_path).rstrip() == shown.rstrip()


def test_the_guide_has_programs() -> None:
    assert len(list(programs(GUIDE))) >= 4


def test_the_guide_leads_to_every_class_that_a_user_can_choose() -> None:
    questions = GUIDE[GUIDE.index("## A service that is not in the catalog") : GUIDE.index("## Add a receiver")]
    rare = {
        Class.MIXED,  # a receiver of its own for each operation says more
        Class.MONOTONIC_SEQUENCE,
        Class.SESSION_SCOPED,
        Class.SINGLE_USE_SECRET,
        Class.ROTATING_REUSABLE_SECRET,
        Class.REUSABLE_SECRET,
    }
    assert {each for each in Class if f"`{each}`" in questions} == set(Class) - rare


def test_the_guide_names_everything_that_with_takes_and_everything_that_is_public() -> None:
    said = set(inspect.signature(Receiver.with_).parameters) - {"self"}
    assert said == {name for name in said if f"`{name}=" in GUIDE}
    code = " ".join(re.findall(r"```.*?```|`[^`\n]+`", GUIDE, re.DOTALL))
    assert [name for name in receivers.__all__ if not re.search(rf"\b{name}\b", code)] == []
