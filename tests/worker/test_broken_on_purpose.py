"""The changes that break rules of the fleet must fit the code as it stands."""

import pytest

from tests.worker.broken_on_purpose import CHANGES, ROOT, Change


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.what)
def test_what_is_broken_on_purpose_stands_in_the_code_once(change: Change) -> None:
    assert (ROOT / "src" / "surefoot" / change.file).read_text("utf-8").count(change.old) == 1
    assert change.new != change.old
