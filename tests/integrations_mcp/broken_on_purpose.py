"""Rules of the MCP client and server, each broken on purpose; tests/breaking.py does it, and says what counts as seen.

python -m tests.integrations_mcp.broken_on_purpose          # all
python -m tests.integrations_mcp.broken_on_purpose WORD     # those whose description holds the word
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

AREA = Area("src/surefoot/integrations", "tests/integrations_mcp")
CHANGES = [
    Change(
        "a session may call a tool again in one attempt",
        "mcp.py",
        "        call_once(self._session, server)\n",
        "",
        "test_once.py -k by_itself",
    ),
    Change(
        "annotations count from any server",
        "mcp_rules.py",
        'return annotated(getattr(tool, "annotations", None)) if trusted else Rule(contract=opaque())',
        'return annotated(getattr(tool, "annotations", None))',
        "test_rules.py -k first_that_says_something",
    ),
    Change(
        "nothing said means that a repeat does no harm",
        "mcp_rules.py",
        "Rule(contract=natural() if repeats else opaque())",
        "Rule(contract=natural())",
        "test_rules.py -k first_that_says_something",
    ),
    Change(
        "any protocol error is a refusal",
        "mcp_rules.py",
        "    if code in REFUSING:",
        "    if code is not None and code != HEADER_MISMATCH:",
        "test_rules.py -k protocol_error_refuses",
    ),
    Change(
        "a repeat runs the tool again",
        "mcp_protected.py",
        'return self._stored(cast("str", claim.result))\n            case Reused',
        "return await self._body(arguments)\n            case Reused",
        "test_server.py -k work_is_done_once",
    ),
    Change(
        "the tool dies with its client",
        "mcp_protected.py",
        "return await asyncio.shield(task)",
        "return await task",
        "test_server.py -k runs_on_without_its_client",
    ),
    Change(
        "a failure means that nothing happened",
        "mcp_protected.py",
        "Move.RELEASE if undone else Move.LOSE",
        "Move.RELEASE",
        "test_server.py -k leaves_it_in_doubt",
    ),
    Change(
        "each try has a key of its own",
        "mcp.py",
        "META_KEY: now.key, META_RUN",
        'META_KEY: f"{now.key}{now.number}", META_RUN',
        "test_rows.py -k gap and keyed and killed_anywhere",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
