"""The contracts of a dozen receivers, byte for byte: they are stored in intents, so a change here is a decision.

`python -m tests.receivers.test_golden` writes the file anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from surefoot import receivers
from surefoot.core.contract import Contract
from surefoot.receivers.describe import contracts_of

GOLDEN = Path(__file__).with_name("golden_contracts.json")
NAMES = (
    "adyen.checkout",
    "aws.dynamodb.transact_write",
    "aws.s3.conditional_put",
    "aws.sqs.fifo",
    "checkout_com.payments",
    "discord.create_message",
    "github.issues_comments",
    "gmail.send",
    "gocardless.creates",
    "google.calendar",
    "oauth.atlassian",
    "pagerduty.events_v2",
    "resend.emails",
    "shopify.admin_graphql",
    "smtp",
    "stripe.v1",
    "zendesk.tickets",
)


def derived() -> dict[str, object]:
    return {name: as_stored(contracts_of(receivers.get(name))) for name in NAMES}


def as_stored(made: object) -> Any:
    return json.loads(msgspec.json.encode(made))


def test_contracts_are_the_ones_that_are_pinned() -> None:
    assert json.loads(GOLDEN.read_text("utf-8")) == derived()


def test_contracts_are_the_same_in_every_process() -> None:
    """Sets of texts come in another order in another process; what is stored must not."""
    code = "from tests.receivers.test_golden import derived; import json; print(json.dumps(derived(), sort_keys=True))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=GOLDEN.parents[2],
            check=True,
            capture_output=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


def test_a_pinned_contract_reads_back_as_it_was() -> None:
    for pinned in json.loads(GOLDEN.read_text("utf-8")).values():
        for stored in pinned.values():
            assert as_stored(msgspec.convert(stored, Contract)) == stored


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(derived(), indent=1, sort_keys=True) + "\n", "utf-8")
