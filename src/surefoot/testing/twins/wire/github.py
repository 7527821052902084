"""GitHub's REST API for issues: no key at all; a mark in the body is found again in the repository's list.

Facts: https://docs.github.com/en/rest/issues/issues and .../rest/using-the-rest-api/rate-limits-for-the-rest-api. The
secondary rate limit answers 403 or 429, and a 403 of it looks like a refusal except for its words and `Retry-After`.
"""

from __future__ import annotations

from urllib.parse import urlencode

from ..behaviour import Behaviour, Said, Sort
from ..messages import Answer, Call, Json, Page, Question, Request, Thing
from .shape import RETRY_AFTER_SECONDS, Listing, iso, json_of, json_page, part_of, seconds_of, whole_number

ISSUES = "issues"
LOGIN = "acme-agent"
LIMITED = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."

BEHAVIOUR = Behaviour(
    name="github.issues_comments",
    operations={ISSUES: Sort.LOOKUP_ONLY},
    codes={
        Said.NOT_PROCESSED: (503, "No server is currently available to service your request."),
        Said.REFUSED: (422, "Validation Failed"),
        Said.ERROR: (500, "Server Error"),
        Said.UNKNOWN: (404, "Not Found"),
    },
)


class Wire:
    """The shape of api.github.com. `limit_status`: what the secondary rate limit answers, 403 or 429."""

    behaviour = BEHAVIOUR

    def __init__(self, *, limit_status: int = 403) -> None:
        """GitHub's documentation names both."""
        self.limit_status = limit_status

    def read(self, call: Call, behaviour: Behaviour) -> Request | Question | Page:
        """POST opens an issue; GET lists a repository's."""
        match call.method, call.path.strip("/").split("/"):
            case "POST", ["repos", owner, repository, "issues"]:
                return Request(operation=ISSUES, payload=json_of(call.body), marker=f"{owner}/{repository}")
            case "GET", ["repos", owner, repository, "issues"]:
                page, limit = whole_number(call.query.get("page"), 1), whole_number(call.query.get("per_page"), 30)
                return Listing(
                    operation=ISSUES,
                    value=f"{owner}/{repository}",
                    since=seconds_of(call.query.get("since", "")),
                    skip=(page - 1) * limit,
                    limit=limit,
                    how=f"http://{call.headers.get('host', '')}{call.path}?"
                    + urlencode({**call.query, "page": page + 1, "per_page": limit}),
                )
            case _:
                status, message = behaviour.code(Said.UNKNOWN)
                return json_page(status, {"message": message, "status": str(status)})

    def write(self, answer: Answer, asked: Request | Question, behaviour: Behaviour) -> Page:
        """An issue, a list with a link to its next page, or a message."""
        if isinstance(asked, Listing) and answer.said is Said.SHOWN:
            things, left = part_of(answer.found, asked)
            link = {"Link": f'<{asked.how}>; rel="next"'} if left else {}
            return json_page(200, [_issue(thing) for thing in things], link)
        if answer.said is Said.MADE and answer.thing is not None:
            return json_page(201, _issue(answer.thing))
        status, message = behaviour.code(answer.said)
        if answer.status == 429:
            later = {"Retry-After": str(RETRY_AFTER_SECONDS)}
            return json_page(self.limit_status, {"message": LIMITED, "status": str(self.limit_status)}, later)
        return json_page(status, {"message": message, "errors": [answer.text], "status": str(status)})


def _issue(thing: Thing) -> Json:
    made, repository = thing.request.payload, thing.request.marker
    return {
        "id": 2_000_000 + thing.number,
        "number": thing.number,
        "title": made.get("title"),
        "body": made.get("body"),
        "state": "open" if thing.open else "closed",
        "user": {"login": LOGIN, "id": 1, "type": "Bot"},
        "labels": [],
        "created_at": iso(thing.made_at),
        "updated_at": iso(thing.made_at),
        "html_url": f"https://github.com/{repository}/issues/{thing.number}",
        "url": f"https://api.github.com/repos/{repository}/issues/{thing.number}",
    }
