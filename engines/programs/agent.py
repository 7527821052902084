"""The agent that every engine runs: it asks a model what to do next and does it, until the order is complete.

Without an engine's or Surefoot's help it keeps nothing. The model and the shop are services on loopback, which count.
"""

import json
import os
import urllib.parse
import urllib.request

ARM, ORDER = os.environ["ARM"], os.environ["ORDER"]
MODEL, SHOP = os.environ["MODEL"], os.environ["SHOP"]
OUT, DB, LIFE = os.environ["OUT"], os.environ["DB"], int(os.environ.get("LIFE", "1"))
PUBLISHED = ARM.startswith("published")
KEYED_BY_ENGINE = ARM == "published_key"
TOOL = {
    "type": "function",
    "function": {
        "name": "shop",
        "description": "One operation on the order.",
        "parameters": {"type": "object", "properties": {"op": {"type": "string"}}, "required": ["op"]},
    },
}


def call(url, body=None, headers=None):
    request = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": "Bearer any", **(headers or {})},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def first(order):
    return [{"role": "user", "content": f"complete order {order}"}]


def ask(messages):
    """One model call: the assistant's message."""
    body = {"model": "m", "messages": messages, "tools": [TOOL]}
    return call(f"{MODEL}/v1/chat/completions", body)["choices"][0]["message"]


def act(op, order, key=""):
    """One operation at the shop: its receipt."""
    headers = {"Idempotency-Key": key} if key else {}
    return call(f"{SHOP}/do/{op}", {"order": order}, headers)["receipt"]


def wanted(message):
    """(operation, call id) that the message asks for; None if it is the answer."""
    calls = message.get("tool_calls")
    return (json.loads(calls[0]["function"]["arguments"])["op"], calls[0]["id"]) if calls else None


def told(message, receipt):
    """What the conversation gains by a turn: the message, and what came of it."""
    return [message, {"role": "tool", "tool_call_id": wanted(message)[1], "content": receipt}]


def finish(answer):
    """Leave the answer where the harness looks for it."""
    draft = f"{OUT}.draft"
    with open(draft, "w") as file:
        json.dump({"answer": answer, "life": LIFE}, file)
    os.replace(draft, OUT)


def say_victim(pid):
    """Tell the services which process group a kill is meant for."""
    call(f"{SHOP}/victim/{pid}", {})
