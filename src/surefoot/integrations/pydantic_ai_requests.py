"""What an agent of pydantic-ai asks its model, as far as it is the same in another process.

Messages carry timestamps and ids of the process that made them; what is left is what was asked.
"""

# The framework is not installed where this is checked, so nothing is known of its types.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import msgspec
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_core import to_jsonable_python

VOLATILE = frozenset({"timestamp", "run_id", "conversation_id", "provider_timestamp"})
"""What differs between two processes that ask the same."""
_encode = msgspec.json.Encoder(order="deterministic").encode


def fingerprint(cache_key: tuple[Any, ...]) -> bytes:
    """What is asked of the model, as far as it is the same in another process."""
    asked: list[Any] = []
    for part in cache_key:
        if isinstance(part, list):
            asked.append(_steady(ModelMessagesTypeAdapter.dump_python(part, mode="json")))
        elif part is None or isinstance(part, str | dict):
            asked.append(_steady(to_jsonable_python(part, fallback=lambda value: type(value).__qualname__)))
        elif hasattr(part, "function_tools"):
            asked.append([[t.name, t.parameters_json_schema] for t in (*part.function_tools, *part.output_tools)])
    return _encode(asked)


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _steady(held) for key, held in value.items() if key not in VOLATILE}
    return [_steady(held) for held in value] if isinstance(value, list) else value
