"""What may be repeated: our rule, the server's declaration, a trusted server's annotations, else nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from surefoot import NotSent, Refused, Several, Unsuccessful, UsageError, keyed, lookup, natural, opaque, receivers
from surefoot.integrations.mcp_rules import (
    META_EFFECT,
    PROBLEMS,
    READS,
    Rule,
    declared,
    read_error,
    read_result,
    rule_for,
    rule_of,
    shown,
)


def tool(meta: Any = None, **hints: bool) -> Any:
    return SimpleNamespace(name="t", meta=meta, annotations=SimpleNamespace(**hints) if hints else None)


KEYED = {META_EFFECT: {"contract": "keyed", "window_seconds": 60}}
OPAQUE = Rule(contract=opaque())


@pytest.mark.parametrize(
    ("listed", "trusted", "expected"),
    [
        (tool(), True, OPAQUE),
        (None, True, OPAQUE),
        (tool(readOnlyHint=True), True, READS),
        (tool(read_only_hint=True), True, READS),
        (tool(readOnlyHint=True), False, OPAQUE),
        (tool(idempotentHint=True), True, Rule(contract=natural())),
        (tool(idempotent_hint=True), False, OPAQUE),
        (tool(destructiveHint=False), True, OPAQUE),
        (tool(KEYED, readOnlyHint=True), True, Rule(contract=keyed(60))),
        (tool(KEYED), False, Rule(contract=keyed(60))),
    ],
)
def test_the_first_that_says_something_decides(listed: Any, trusted: bool, expected: Rule) -> None:
    assert rule_for(listed, "t", {}, trusted=trusted) == expected
    assert rule_for(listed, "t", {"t": Rule(contract=lookup(2))}, trusted=trusted) == Rule(contract=lookup(2))


def test_a_rule_is_a_contract_an_entry_of_the_catalog_or_a_rule() -> None:
    assert rule_of(opaque()) == OPAQUE
    assert rule_of(receivers.get("stripe.v1")).contract is not None
    with pytest.raises(UsageError, match="a rule for an MCP tool"):
        rule_of("keyed")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "said", [{}, {"contract": "keyed"}, {"contract": "never"}, {"contract": "keyed", "window_seconds": -1}]
)
def test_a_declaration_that_is_no_promise_is_an_error_and_no_default(said: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="is no promise"):
        declared(said, "t")


def test_a_declared_lookup_names_the_tool_that_is_asked() -> None:
    assert declared({"contract": "lookup", "lag_seconds": 2, "ask": "find"}, "t") == Rule(
        contract=lookup(2), ask="find"
    )


def result(text: str = "", *, failed: bool = True, structured: Any = None) -> dict[str, Any]:
    extra = {} if structured is None else {"structuredContent": structured}
    return {"content": [{"type": "text", "text": text}], "isError": failed, **extra}


def test_an_error_result_is_the_tools_answer_unless_it_says_that_nothing_is_settled() -> None:
    assert read_result(result("too much"), OPAQUE) == result("too much")
    with pytest.raises(Unsuccessful):
        read_result(result("too much"), Rule(contract=opaque(), errors_are_doubt=True))
    for urn, says in PROBLEMS.items():
        with pytest.raises(Unsuccessful) as raised:
            read_result(result(f"Error executing tool pay: {urn}: later"), OPAQUE)
        assert raised.value.reading.kind is says


def test_a_protocol_error_refuses_only_where_the_request_was_turned_away() -> None:
    def error(code: int) -> Exception:
        made = Exception("no")
        made.error = SimpleNamespace(code=code, message="no")  # pyright: ignore[reportAttributeAccessIssue]
        return made

    assert isinstance(read_error(error(-32602)), Refused)
    assert isinstance(read_error(error(-32020)), NotSent)
    for code in (-32603, -32000, -32001, 7):
        assert read_error(unknown := error(code)) is unknown


def test_what_a_lookup_shows() -> None:
    assert shown(result("[]", failed=False)) is None
    assert shown(result(failed=False)) is None
    assert shown(result(failed=False, structured={"result": [{"id": 1}]})) == {"id": 1}
    assert shown(result('{"id": 1}', failed=False)) == {"id": 1}
    assert shown(result("refund 7", failed=False)) == "refund 7"
    with pytest.raises(Several):
        shown(result(failed=False, structured={"result": [1, 2]}))
    with pytest.raises(Exception, match="answered with an error"):
        shown(result("broken"))
