"""The services' own client packages, pointed at a twin: what a user writes, except for the address.

`options` is what `attempt.options(package)` says; without any, a client has its package's defaults, retries and all.
"""

from __future__ import annotations

from typing import Any

import boto3
import github
import httpx2
import pagerduty
import sendgrid
import slack_sdk
import stripe
import twilio.rest
import zenpy

ACCOUNT = f"AC{7:032x}"


def stripe_client(url: str, **options: Any) -> stripe.StripeClient:
    return stripe.StripeClient("sk_test_acme", base_addresses={"api": url}, **options)


def zendesk_client(url: str, **options: Any) -> zenpy.Zenpy:
    """zenpy knows no base URL, but its addresses may be overridden where they are built."""
    client = zenpy.Zenpy(subdomain="acme", email="agent@acme.test", token="t", **options)
    scheme, _, place = url.partition("://")
    for api in (client.tickets, client.search):
        api.protocol, api.subdomain, api.domain = scheme, *place.split(".", 1)
    return client


def github_client(url: str, **options: Any) -> github.Github:
    return github.Github(auth=github.Auth.Token("t"), base_url=url, lazy=True, **options)


def slack_client(url: str, **options: Any) -> slack_sdk.WebClient:
    return slack_sdk.WebClient("xoxb-t", base_url=f"{url}/api/", **options)


def sendgrid_client(url: str, *, timeout: float | None = None) -> sendgrid.SendGridAPIClient:
    client = sendgrid.SendGridAPIClient("SG.t", host=url)
    client.client.timeout = timeout
    return client


class Loopback(httpx2.HTTPTransport):
    """PagerDuty's client takes https addresses only, so the way there is changed instead."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = httpx2.URL(url)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(scheme="http", host=self.url.host, port=self.url.port)
        return super().handle_request(request)


def pagerduty_events(url: str) -> pagerduty.EventsApiV2Client:
    return pagerduty.EventsApiV2Client("R" * 32, transport=Loopback(url))


def pagerduty_rest(url: str) -> pagerduty.RestApiV2Client:
    return pagerduty.RestApiV2Client("t", transport=Loopback(url))


def twilio_client(url: str, **options: Any) -> twilio.rest.Client:
    client = twilio.rest.Client(ACCOUNT, "t", **options)
    client.api.base_url = url
    return client


def s3_client(url: str, **options: Any) -> Any:
    where = {"endpoint_url": url, "region_name": "eu-central-1"}
    return boto3.client("s3", aws_access_key_id="a", aws_secret_access_key="s", **where, **options)
