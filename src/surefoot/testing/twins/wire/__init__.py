"""The wire shapes of eight services, so that their own client packages can be pointed at a twin.

with Twin.of(wire.stripe.BEHAVIOUR, wire=wire.stripe.Wire()) as twin:
    client = stripe.StripeClient("sk_test", base_addresses={"api": twin.url})
"""

from . import github, pagerduty, s3, sendgrid, slack, stripe, twilio, zendesk

__all__ = ["github", "pagerduty", "s3", "sendgrid", "slack", "stripe", "twilio", "zendesk"]
