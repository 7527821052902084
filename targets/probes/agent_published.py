"""The agent as people write it by hand: a journal by position, three tries; `sys.argv[1]` is journal, keys or asks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from office import AMOUNT, CHARGE, CODE, Json, assess, find, say, send

FORM = sys.argv[1]
ASKABLE = os.environ["OFFER"] == "lookup" or "ASKABLE" in os.environ


class Journal:
    """Results by their position, one fsynced line each."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a+")  # noqa: SIM115 -- open for as long as the agent lives
        self._file.seek(0)
        self._known: list[Any] = [json.loads(line) for line in self._file]
        self._at = 0

    def once(self, body: Callable[[], Any]) -> Any:
        """The next result: the recorded one, or a new one."""
        self._at += 1
        if self._at <= len(self._known):
            return self._known[self._at - 1]
        result = body()
        self._file.write(json.dumps(result) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        return result


def act(what: str, body: Json) -> Json:
    """Send it, at most three times."""
    key = f"{what}:{CHARGE}"
    for left in (2, 1, 0):
        try:
            if FORM == "asks" and ASKABLE and (known := find(what, key)) is not None:
                return known
            headers = {"Idempotency-Key": key} if FORM != "journal" else {}
            return send(what, body, headers=headers)
        except Exception:
            if not left:
                raise
    raise AssertionError


def main() -> None:
    """Assess, have it approved, refund, mail."""
    journal = Journal(os.path.join(os.environ["STATE"], "journal.jsonl"))
    if CODE == "inserted":
        journal.once(lambda: {"policy": "checked"})
    assessment: Json = {"text": "low risk"} if CODE == "removed" else journal.once(lambda: assess(CHARGE))
    amount = AMOUNT
    if "APPROVAL" in os.environ:
        journal.once(lambda: {"approved": AMOUNT})  # somebody said yes to 10
        amount = 9_999 if CODE == "other_amount" else AMOUNT
    receipt = journal.once(lambda: act("refund", {"charge": CHARGE, "amount": amount}))
    journal.once(lambda: act("mail", {"text": f"refund of {CHARGE}"}))
    say(assessment, receipt)


if __name__ == "__main__":
    main()
