"""What breaks rules on purpose must fit the code as it stands, and count only what proves something."""

from __future__ import annotations

import pytest

from tests.breaking import Area, Change, Seen, areas, broken, given_to, judged

EVERY = [(name, area, change) for name, (area, changes) in areas().items() for change in changes]


@pytest.mark.parametrize(("name", "area", "change"), EVERY, ids=[f"{name}: {change.what}" for name, _, change in EVERY])
def test_what_is_broken_on_purpose_stands_in_the_code_once(name: str, area: Area, change: Change) -> None:
    file, text = broken(area, change)
    assert file.read_text("utf-8") != text
    assert given_to(area, change), f"no test is to see {name}: {change.what}"


@pytest.mark.parametrize(
    ("code", "out", "seen"),
    [
        (0, "3 passed", Seen("")),
        (1, "F\nFAILED tests/a.py::test_b[x y] - AssertionError: no\n1 failed", Seen("tests/a.py::test_b[x y]")),
        (1, "F\nFAILED tests/a.py::test_b\n1 failed", Seen("tests/a.py::test_b")),
    ],
)
def test_a_test_that_failed_is_named(code: int, out: str, seen: Seen) -> None:
    assert judged(code, out, "") == seen


@pytest.mark.parametrize(
    ("code", "out", "why"),
    [
        (1, "ERROR tests/a.py::test_b - fixture", "named no test that failed"),
        (2, "ERROR tests/a.py - ImportError\nFAILED tests/a.py::test_b", "pytest ended with 2"),
        (-9, "", "pytest ended with -9"),
        (5, "no tests ran", "pytest ended with 5"),
        (1, "FAILED tests/a.py::test_b - Failed: Timeout (>60.0s) from pytest-timeout.", "timed out"),
    ],
)
def test_a_run_that_names_no_failed_test_proves_nothing(code: int, out: str, why: str) -> None:
    seen = judged(code, out, "")
    assert not seen.test and why in seen.why
