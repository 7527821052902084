"""A refresh token that is good for one use, and an answer that gets lost: nobody is given a broken token."""

import secrets

from surefoot import Attempt, Surefoot
from surefoot.credentials import Credential, NeedsReconnect, Token, strict

good: set[str] = set()  # the provider: refresh tokens that were not used yet
losing = [False]


def issue() -> dict[str, object]:
    token = secrets.token_hex(8)
    good.add(token)
    return {"access_token": f"access-{token}", "refresh_token": token, "expires_in": 3600}


def exchange(attempt: Attempt, refresh_token: str) -> dict[str, object]:
    good.remove(refresh_token)
    answer = issue()
    if losing[0]:
        raise TimeoutError("the answer was lost on its way")
    return answer


crm = Credential("crm:acme", refresh=exchange, receiver=strict(), key=lambda: bytes(32))  # real keys come from a vault

with Surefoot("agents.db"):
    crm.connect(Token.of(issue()))
    first = crm.access_token()
    print("kept while it lives:", crm.access_token() == first)
    second = crm.access_token(refused=first)  # a resource answered 401
    print("refreshed:", second != first, crm.view().state)
    losing[0] = True
    try:
        crm.access_token(refused=second)
    except NeedsReconnect as error:
        print("needs_reconnect:", error.why)
    losing[0] = False
    crm.reconnect(Token.of(issue()))  # its owner authorized it again
    print("goes on:", crm.access_token() != second, crm.view().state, "family", crm.view().family)
