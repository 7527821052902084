"""One acting call of each client library, as its users write it, made with the arguments that a test gives."""

from __future__ import annotations

import asyncio
import functools
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from surefoot.effects.attempt import Attempt

Call = Callable[[str, Mapping[str, Any]], Any]
SECONDS = 20.0


def an_attempt(timeout: float = SECONDS, **fields: Any) -> Attempt:
    """An attempt as a body gets it, without a store."""
    given = {"key": "key-1", "deadline": 4e9, "number": 1, "identity": "order:1", "effect": "f" * 64}
    return Attempt(**{**given, "timeout": timeout, **fields})


def post_with_httpx(url: str, options: Mapping[str, Any]) -> Any:
    import httpx

    with httpx.Client(**{"timeout": SECONDS, **options}) as client:
        return client.post(f"{url}/things", json={}).raise_for_status()


def post_with_httpx2(url: str, options: Mapping[str, Any]) -> Any:
    import httpx2

    with httpx2.Client(**{"timeout": SECONDS, **options}) as client:
        return client.post(f"{url}/things", json={}).raise_for_status()


def post_with_async_httpx(url: str, options: Mapping[str, Any]) -> Any:
    import httpx

    async def call() -> Any:
        async with httpx.AsyncClient(**{"timeout": SECONDS, **options}) as client:
            return (await client.post(f"{url}/things", json={})).raise_for_status()

    return asyncio.run(call())


def post_with_requests(url: str, options: Mapping[str, Any]) -> Any:
    import requests

    response = requests.post(f"{url}/things", **{"json": {}, "timeout": SECONDS, **options})
    response.raise_for_status()
    return response


def post_with_urllib3(url: str, options: Mapping[str, Any]) -> Any:
    import urllib3

    pool = urllib3.PoolManager(**{"timeout": SECONDS, **options})
    return pool.request("POST", f"{url}/things", body=b"{}")


def put_with_urllib3(url: str, options: Mapping[str, Any]) -> Any:
    import urllib3

    pool = urllib3.PoolManager(**{"timeout": SECONDS, **options})
    return pool.request("PUT", f"{url}/things/1", body=b"{}")


def post_with_urllib(url: str, options: Mapping[str, Any]) -> Any:
    import urllib.request

    request = urllib.request.Request(f"{url}/things", data=b"{}", method="POST")
    with urllib.request.urlopen(request, timeout=options.get("timeout", SECONDS)) as response:
        return response.read()


def _aiohttp(method: str, path: str, url: str, options: Mapping[str, Any]) -> Any:
    import aiohttp

    async def call() -> Any:
        given = {"timeout": aiohttp.ClientTimeout(sock_connect=SECONDS, sock_read=SECONDS), **options}
        async with aiohttp.ClientSession(**given) as session, session.request(method, url + path, json={}) as response:
            response.raise_for_status()
            return await response.read()

    return asyncio.run(call())


def post_with_aiohttp(url: str, options: Mapping[str, Any]) -> Any:
    return _aiohttp("POST", "/things", url, options)


def put_with_aiohttp(url: str, options: Mapping[str, Any]) -> Any:
    return _aiohttp("PUT", "/things/1", url, options)


def send_mail_with_boto3(url: str, options: Mapping[str, Any]) -> Any:
    return _aws("sesv2", url, options).send_email(
        FromEmailAddress="a@b.example", Destination={"ToAddresses": ["c@d.example"]}, Content={"Raw": {"Data": b"x"}}
    )


def run_instances_with_boto3(url: str, options: Mapping[str, Any]) -> Any:
    return _aws("ec2", url, options).run_instances(ImageId="ami-1", MinCount=1, MaxCount=1)


@functools.cache
def _aws_session() -> Any:
    """Keeps the descriptions of the services, which take long to read."""
    import boto3

    return boto3.session.Session()


_aws_lock = threading.Lock()


def _aws(service: str, url: str, options: Mapping[str, Any]) -> Any:
    from botocore.config import Config

    given = {"config": Config(connect_timeout=SECONDS, read_timeout=SECONDS), **options}
    keys = {"region_name": "eu-west-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    with _aws_lock:  # a session is not made for several threads
        return _aws_session().client(service, endpoint_url=url, **keys, **given)


def pay_with_stripe(url: str, options: Mapping[str, Any]) -> Any:
    import stripe

    client = stripe.StripeClient("sk_test_1", base_addresses={"api": url}, **options)
    return client.v1.payment_intents.create({"amount": 1, "currency": "eur"})


def pay_with_stripe_module(url: str, options: Mapping[str, Any]) -> Any:
    import stripe

    before = {name: getattr(stripe, name) for name in ("api_key", "api_base", "max_network_retries")}
    try:
        stripe.api_key, stripe.api_base = "sk_test_1", url
        stripe.max_network_retries = options.get("max_network_retries", stripe.max_network_retries)
        return stripe.PaymentIntent.create(amount=1, currency="eur")
    finally:
        for name, value in before.items():
            setattr(stripe, name, value)


def open_issue_with_pygithub(url: str, options: Mapping[str, Any]) -> Any:
    import github

    given = {"timeout": 20, "seconds_between_writes": 0, **options}
    client = github.Github(auth=github.Auth.Token("x"), base_url=url, lazy=True, **given)
    return client.get_repo("a/b").create_issue("title")


def post_with_slack_sdk(url: str, options: Mapping[str, Any]) -> Any:
    from slack_sdk import WebClient

    return WebClient("xoxb-1", base_url=f"{url}/", **{"timeout": 20, **options}).chat_postMessage(channel="C", text="x")


def answer_with_openai(url: str, options: Mapping[str, Any]) -> Any:
    import openai

    client = openai.OpenAI(api_key="x", base_url=url, **{"timeout": SECONDS, **options})
    return client.responses.create(model="m", input="x")


def answer_with_anthropic(url: str, options: Mapping[str, Any]) -> Any:
    import anthropic

    client = anthropic.Anthropic(api_key="x", base_url=url, **{"timeout": SECONDS, **options})
    return client.messages.create(model="m", max_tokens=3, messages=[{"role": "user", "content": "x"}])


def text_with_twilio(url: str, options: Mapping[str, Any]) -> Any:
    from twilio.http.http_client import TwilioHttpClient
    from twilio.rest import Client

    client = Client("AC1", "x", **{"http_client": TwilioHttpClient(timeout=SECONDS), **options})
    client.api.base_url = url  # the only way to another host
    return client.messages.create(to="+1", from_="+2", body="x")


def mail_with_sendgrid(url: str, options: Mapping[str, Any]) -> Any:
    import sendgrid

    client = sendgrid.SendGridAPIClient("x", host=url)
    client.client.timeout = options.get("timeout", SECONDS)
    return client.client.mail.send.post(request_body={})


HTTP_CLIENTS = (
    "requests.post",
    "httpx.Client.post",
    "httpx.AsyncClient.post",
    "urllib.request",
    "urllib3.PoolManager",
    "aiohttp.ClientSession",
    "boto3",
)
CALLS: dict[str, tuple[str, Call]] = {
    # what is called, the name for attempt.options ("" where it has none), the call
    "requests.post": ("", post_with_requests),
    "httpx.Client.post": ("", post_with_httpx),
    "httpx.AsyncClient.post": ("", post_with_async_httpx),
    "httpx2.Client.post": ("", post_with_httpx2),
    "urllib.request POST": ("", post_with_urllib),
    "urllib3.PoolManager POST": ("urllib3", post_with_urllib3),
    "urllib3.PoolManager PUT": ("urllib3", put_with_urllib3),
    "aiohttp.ClientSession POST": ("aiohttp", post_with_aiohttp),
    "aiohttp.ClientSession PUT": ("aiohttp", put_with_aiohttp),
    "boto3 sesv2.send_email": ("boto3", send_mail_with_boto3),
    "boto3 ec2.run_instances": ("boto3", run_instances_with_boto3),
    "stripe StripeClient payment_intents.create": ("stripe", pay_with_stripe),
    "stripe PaymentIntent.create": ("stripe", pay_with_stripe_module),
    "PyGithub create_issue": ("github", open_issue_with_pygithub),
    "slack_sdk chat_postMessage": ("slack_sdk", post_with_slack_sdk),
    "openai responses.create": ("openai", answer_with_openai),
    "anthropic messages.create": ("anthropic", answer_with_anthropic),
    "twilio messages.create": ("twilio", text_with_twilio),
    "sendgrid mail.send": ("", mail_with_sendgrid),
}


SLOW_TO_IMPORT = ("anthropic messages.create",)  # made by the generator that makes openai, which is tested
IN_TESTS = tuple(name for name in CALLS if name not in (*SLOW_TO_IMPORT, "boto3 ec2.run_instances"))
BARE = tuple(name for name in IN_TESTS if name.split()[0] in HTTP_CLIENTS and not name.endswith("PUT"))
"""Without the packages that only wrap one of these."""


def quietly(call: Call, url: str, options: Mapping[str, Any]) -> BaseException | None:
    """Make the call; what it raised, if anything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call(url, options)
        except BaseException as error:
            return error
    return None
