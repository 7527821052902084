"""What may be done about a call of an MCP tool, and what its answer says; nothing here talks to a server.

The order: our own rule for the tool, the server's declaration in the tool's `_meta`, the annotations of a server that
is *trusted* (the protocol calls them hints, and says not to rely on them otherwise), else nothing is known: in doubt a
person decides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from ..core.contract import Contract, Promises, keyed, lookup, natural, opaque
from ..core.errors import NotSent, Refused, Several, SurefootError, UsageError
from ..effects.reading import Reading, Says, Unsuccessful

META_KEY = "surefoot/idempotency-key"
META_RUN = "surefoot/run"
META_EFFECT = "surefoot/effect"
"""Where a tool declares what its server promises: `{"contract": "keyed", "window_seconds": 86400}`."""
PROBLEMS = {
    "urn:surefoot:inbox:in-progress": Says.IN_FLIGHT,
    "urn:surefoot:inbox:key-reused": Says.CHANGED_PAYLOAD,
    "urn:surefoot:inbox:outcome-unknown": Says.IN_DOUBT,
    "urn:surefoot:inbox:store-unavailable": Says.NOT_PROCESSED,
}
"""What our server helper says of a key, in the text of an error."""
REFUSING = (-32700, -32600, -32601, -32602, -32021, -32022)
"""JSON-RPC: the request was turned away before a tool ran."""
HEADER_MISMATCH = -32020
Result = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What may be done about calls of one tool.

    `contract` is the promise of the server, None for a tool that only reads: its result is kept, and it runs again if a
    crash lost it. `ask` names another tool of the server that shows what this one has done; it is asked in doubt, with
    `ask_arguments(arguments, key)` (the same arguments, unless given), and `found(result)` says what it shows: None for
    nothing, else what becomes the result. `identity` is a business identity of the arguments, as "order:{order_id}".
    `errors_are_doubt` is for tools whose error results may hide that it happened.
    """

    contract: Contract | None
    ask: str = ""
    ask_arguments: Callable[[dict[str, Any], str], dict[str, Any]] | None = None
    found: Callable[[Any], Any] | None = None
    identity: str | None = None
    errors_are_doubt: bool = False
    timeout: timedelta | float | None = None


READS = Rule(contract=None)
"""For tools that change nothing."""


def rule_of(wanted: Rule | Contract | Promises) -> Rule:
    """A rule, also for a bare contract or an entry of the catalog; UsageError for anything else."""
    if isinstance(wanted, Rule):
        return wanted
    if isinstance(wanted, Contract):
        return Rule(contract=wanted)
    if isinstance(wanted, Promises):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Rule(contract=wanted.contract)
    raise UsageError(f"a rule for an MCP tool is a Rule, a contract or READS, found {wanted!r}")


def declared(effect: Mapping[str, Any], tool: str) -> Rule:
    """The rule that a server declares in `_meta`; UsageError for a declaration that is none."""
    kind = effect.get("contract")
    seconds = {name: effect[f"{name}_seconds"] for name in ("window", "lag") if f"{name}_seconds" in effect}
    makers: dict[Any, Callable[..., Contract]] = {"keyed": keyed, "lookup": lookup, "natural": natural}
    try:
        if kind == "reads":
            return READS
        contract = opaque() if kind == "opaque" else makers[kind](**seconds)
    except (KeyError, TypeError, UsageError) as error:
        raise UsageError(
            f"tool {tool!r} declares {dict(effect)!r} under {META_EFFECT}, which is no promise ({error}); expected "
            '{"contract": "keyed", "window_seconds": …}, or reads, natural, lookup with lag_seconds, opaque. Give the '
            "tool a rule of your own"
        ) from None
    return Rule(contract=contract, ask=str(effect.get("ask", "")))


def annotated(hints: Any) -> Rule:
    """The rule that a trusted server's annotations stand for; nothing said means the worst, as in the protocol."""
    reads = getattr(hints, "read_only_hint", None) or getattr(hints, "readOnlyHint", None)
    repeats = getattr(hints, "idempotent_hint", None) or getattr(hints, "idempotentHint", None)
    return READS if reads else Rule(contract=natural() if repeats else opaque())


def rule_for(tool: Any, name: str, rules: Mapping[str, Rule], *, trusted: bool) -> Rule:
    """Ours, the server's, the annotations of a trusted server, or opaque. `tool` is its listing, None if not listed."""
    if name in rules:
        return rules[name]
    if tool is None:
        return Rule(contract=opaque())
    meta = cast("dict[str, Any]", getattr(tool, "meta", None) or {})
    if META_EFFECT in meta:
        return declared(meta[META_EFFECT], name)
    return annotated(getattr(tool, "annotations", None)) if trusted else Rule(contract=opaque())


# --- what an answer says ----------------------------------------------------------------------------------------------


def dump(result: Any) -> Result:
    """A result as it came over the wire: what was not set stays out."""
    return result.model_dump(mode="json", by_alias=True, exclude_unset=True)


def text_of(result: Result) -> str:
    """The text of a result."""
    blocks = cast("list[dict[str, Any]]", result.get("content") or [])
    return "\n".join(str(block.get("text", "")) for block in blocks)


def read_result(result: Result, rule: Rule) -> Result:
    """The result, if it is the tool's answer; raises Unsuccessful where it says that this is not settled."""
    if not result.get("isError"):
        return result
    text = text_of(result)
    says = next((says for urn, says in PROBLEMS.items() if urn in text), None)
    if says is None and rule.errors_are_doubt:
        says = Says.IN_DOUBT
    if says is not None:
        raise Unsuccessful(Reading(kind=says, reason=text[:500]))
    return result


def read_error(error: Exception) -> Exception:
    """What a protocol error says of the call: refused before it ran, certainly not processed, or nothing."""
    told = getattr(error, "error", None)
    code = getattr(told, "code", None)
    if code in REFUSING:
        return Refused(f"{getattr(told, 'message', error)}", code=code)
    return NotSent(str(error)) if code == HEADER_MISMATCH else error


def shown(result: Result) -> Any:
    """What a lookup's result shows: its structured content, or its text as JSON; None for nothing."""
    if result.get("isError"):
        raise SurefootError(f"the lookup answered with an error: {text_of(result)[:300]}")
    content = result.get("structuredContent")
    if content is None:
        text = text_of(result).strip()
        try:
            content = json.loads(text) if text else None
        except ValueError:
            content = text
    if isinstance(content, dict) and set(cast("dict[str, Any]", content)) == {"result"}:
        content = cast("dict[str, Any]", content)["result"]
    if isinstance(content, list) and len(cast("list[Any]", content)) > 1:
        raise Several(f"{len(cast('list[Any]', content))} could be ours")
    return content[0] if isinstance(content, list) and content else content or None  # pyright: ignore[reportUnknownVariableType]


def as_result(found: Any) -> Result:
    """A recorded result; what a lookup found, or a person gave as the receipt, in the shape of one."""
    if isinstance(found, dict) and ("content" in found or found.get("resultType") == "input_required"):  # pyright: ignore[reportUnknownMemberType]
        return cast("Result", found)
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, sort_keys=True)
    structured: Result = {"structuredContent": found} if isinstance(found, dict) else {}
    return {"content": [{"type": "text", "text": text}], **structured}
