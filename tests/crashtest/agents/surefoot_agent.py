"""The same work with Surefoot: the model's answer is a step, the charge an effect whose receiver honours keys."""

import json
import os
import urllib.request
from datetime import timedelta

from surefoot import Surefoot, effect, keyed, step, workflow


def post(url, body, **headers):
    content = {"Content-Type": "application/json", "Authorization": "Bearer any", **headers}
    request = urllib.request.Request(url, json.dumps(body).encode(), content)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


@step(retries=3)
def ask(order: str) -> str:
    body = {"model": "any", "messages": [{"role": "user", "content": f"pay order {order}"}]}
    return post(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body)["choices"][0]["message"]["content"]


@effect(keyed(window=timedelta(hours=24)), identity="charge:{order}", timeout=2)
def charge(attempt, order: str) -> dict:
    return post(f"{os.environ['SHOP_URL']}/charges", {"order": order, "cents": 1999}, **attempt.headers)


@workflow
def pay(order: str) -> str:
    ask(order)
    return f"order {order} is paid: {charge(order)['id']}"


if __name__ == "__main__":
    with Surefoot("agents.db", lease=1, grace=1) as sf:
        print(sf.run(pay, "81", id="pay-81"))
