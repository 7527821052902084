"""The table of docs/inside.md is what the committed results say, and every result proves its kills."""

from __future__ import annotations

import pytest

from engines.page import BEGIN, END, PAGE, results, table
from targets.results import Result, Row


def test_the_page_holds_the_table_of_the_results() -> None:
    shown = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    assert shown.strip() == table(list(results())).strip()


@pytest.mark.parametrize("result", list(results()), ids=lambda result: result.target)
def test_every_row_is_proved_and_ours_are_good(result: Result) -> None:
    assert result.complaints() == []
    assert all(row.tries >= 3 for row in result.rows)
    assert [f"{row.arm}: {row.row}" for row in result.rows if row.ours and row.good < row.tries] == []


def test_a_row_without_its_kill_is_a_complaint() -> None:
    row = Row(row="killed in the gap", arm="a", seen="1/1/1", verdict="once", tries=3, good=3, asked=3, done=2)
    assert list(row.complaints())
