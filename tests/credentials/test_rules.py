"""The rules without a store: what an exception says, what a clock says, what a provider promises, what a chain is."""

from __future__ import annotations

import io
import re
import urllib.error
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest

from surefoot import NotSent, Refused, UsageError, keyed, lookup, natural, opaque, receivers
from surefoot.core.contract import Kind
from surefoot.core.effect import Effect, Status
from surefoot.core.ids import derive_key
from surefoot.credentials import Token, TokenContract, family_revocation, grace, reusable, rotating_reusable, strict
from surefoot.credentials.answers import DEAD, ExchangeLost, told
from surefoot.credentials.chain import State, identity_of, newest, state_of
from surefoot.credentials.contract import Mode, token_contract
from surefoot.credentials.errors import WrongKey
from surefoot.credentials.sealing import KEY_VARIABLE, Keys, key_id_of, keys_from_environment
from surefoot.credentials.token import Held, Moment, held_from
from surefoot.testing.oauth import EndpointError

SECRET = "refresh-6f1c0ffee"


# --- what an exception says ---------------------------------------------------------------------------------------


def of_httpx(status: int, body: Any) -> Exception:
    request = httpx.Request("POST", f"https://provider.test/token?refresh_token={SECRET}")
    response = httpx.Response(status, json=body, request=request)
    return httpx.HTTPStatusError(f"failed for {request.url}", request=request, response=response)


def of_urllib(status: int, body: Any) -> Exception:
    import json

    content = io.BytesIO(json.dumps(body).encode())
    return urllib.error.HTTPError(f"https://provider.test/?{SECRET}", status, "Bad", None, content)  # type: ignore[arg-type]


def of_ours(status: int, body: Any) -> Exception:
    return EndpointError(status, body)


LIBRARIES: list[Callable[[int, Any], Exception]] = [of_httpx, of_urllib, of_ours]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("status", [200, 400, 401, 403])
def test_a_refused_refresh_token_is_recognised_by_its_code(
    library: Callable[[int, Any], Exception], status: int
) -> None:
    said = told(library(status, {"error": "invalid_grant", "error_description": SECRET}), strict(), (SECRET,))
    assert isinstance(said, Refused) and said.code == "invalid_grant" and said.reason.startswith(DEAD)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("status", "code"), [(401, "invalid_client"), (400, "invalid_scope"), (400, ""), (404, "")])
def test_a_refused_request_is_no_refused_token(
    library: Callable[[int, Any], Exception], status: int, code: str
) -> None:
    said = told(library(status, {"error": code} if code else {}), strict(), (SECRET,))
    assert isinstance(said, Refused) and not said.reason.startswith(DEAD)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("status", [500, 502, 503, 504, 408])
def test_an_error_of_the_provider_says_nothing(library: Callable[[int, Any], Exception], status: int) -> None:
    assert isinstance(told(library(status, {"message": SECRET}), strict(), (SECRET,)), ExchangeLost)


@pytest.mark.parametrize("library", LIBRARIES)
def test_too_many_requests_were_not_looked_at(library: Callable[[int, Any], Exception]) -> None:
    assert isinstance(told(library(429, {"error": "slow_down"}), strict(), (SECRET,)), NotSent)


def test_what_did_not_leave_was_not_sent() -> None:
    request = httpx.Request("POST", "https://provider.test/token")
    for error in (httpx.ConnectError("refused", request=request), ConnectionRefusedError(), NotSent("no")):
        assert isinstance(told(error, strict()), NotSent)
    for error in (httpx.ReadTimeout("late", request=request), TimeoutError(), ConnectionResetError(), KeyError(SECRET)):
        assert isinstance(told(error, strict()), ExchangeLost)


def test_no_text_of_an_exception_is_kept() -> None:
    def failing() -> None:
        raise ValueError(f"unexpected answer {{'refresh_token': '{SECRET}'}}")

    try:
        failing()
    except ValueError as error:
        said = told(error, strict(), (SECRET,))
    assert re.fullmatch(r"ValueError in failing, test_rules.py:\d+", str(said))
    assert SECRET not in str(told(Refused(f"no {SECRET}", code=SECRET), strict(), (SECRET,)))
    assert SECRET not in str(told(of_ours(400, {"error": SECRET}), strict(), (SECRET,)))


# --- tokens -------------------------------------------------------------------------------------------------------


def test_a_token_shows_no_secret_and_is_checked() -> None:
    assert SECRET not in repr(Token(access_token=SECRET, refresh_token=SECRET))
    for wrong in (
        {"access_token": f"{SECRET} "},
        {"access_token": 7},
        {"refresh_token": ""},
        {"refresh_token": SECRET + "\n"},
        {"expires_in": -1},
        {"expires_in": float("nan")},
        {"expires_in": float("inf")},
        {"expires_in": "3600"},
        {"expires_in": True},
    ):
        with pytest.raises(UsageError) as refused:
            Token(**wrong)  # type: ignore[arg-type]
        assert SECRET not in str(refused.value)


def test_a_token_is_read_from_an_answer() -> None:
    assert Token.of({"access_token": "a", "expires_in": "3599", "scope": "x"}) == Token(
        access_token="a", expires_in=3599.0
    )
    with pytest.raises(Refused) as refused:
        Token.of({"error": "bad_refresh_token", "error_description": "..."})
    assert refused.value.code == "bad_refresh_token"
    with pytest.raises(UsageError):
        Token.of({"ok": True})


def held(lifetime: float | None = 3600.0, access: str = "a") -> Held:
    token = Token(access_token=access, refresh_token="r", expires_in=lifetime)
    return held_from(token, Moment(1000.0, "boot-1", 50.0))


def test_a_life_is_counted_on_the_clock_that_says_less() -> None:
    assert held().seconds_left(1100.0, "boot-1", 150.0) == 3500.0
    assert held().seconds_left(900.0, "boot-1", 150.0) == 3500.0, "the wall clock was set back"
    assert held().seconds_left(4000.0, "boot-1", 60.0) == 600.0, "it was set forward"
    assert held().seconds_left(1100.0, "boot-2", 5.0) == 3500.0
    assert held().seconds_left(990.0, "boot-2", 5.0) == 3600.0, "another machine's clock is a little behind"
    assert held().seconds_left(900.0, "boot-2", 5.0) == 0.0, "nothing tells how old it is"
    assert held(None).seconds_left(9e9, "boot-1", 9e9) == float("inf")
    assert held(access="").seconds_left(1000.0, "boot-1", 50.0) == 0.0
    assert "access" not in repr(held()) and held(20.0).needed_seconds(60.0) == 10.0


# --- promises -----------------------------------------------------------------------------------------------------


def test_a_promise_is_stored_as_a_contract() -> None:
    assert strict().contract.kind is Kind.OPAQUE and family_revocation().contract.kind is Kind.OPAQUE
    assert reusable().contract.kind is Kind.NATURAL and rotating_reusable() == reusable()
    made = grace(30).contract
    assert made.kind is Kind.KEYED and made.protected_seconds == 15.0 and not made.is_short
    assert strict().contract.key_name == "" and made.answers.refused == ()


def test_a_contract_stands_for_a_promise() -> None:
    assert token_contract(opaque()).mode is Mode.STRICT
    assert token_contract(keyed(window=600)) == grace(600)
    assert token_contract(natural()).mode is Mode.REUSABLE
    for wrong in (lookup(lag=1), opaque(at_least_once=True), receivers.get("stripe.v1"), 7):
        with pytest.raises(UsageError):
            token_contract(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        grace(0)


def test_the_catalog_names_promises() -> None:
    okta = token_contract("oauth.okta")
    assert okta == token_contract(receivers.get("oauth.okta")) and okta.contract.receiver == "oauth.okta"
    assert (okta.mode, okta.grace_seconds, okta.revokes_family) == (Mode.GRACE, 30.0, True)
    for name in [name for name in receivers.names() if name.startswith("oauth.")]:
        made = token_contract(name)
        assert isinstance(made, TokenContract) and "invalid_grant" in made.dead_codes
        assert made.mode is not Mode.GRACE or made.grace_seconds > 0


def test_a_grace_whose_length_nobody_has_told_is_none() -> None:
    okta: Any = receivers.get("oauth.okta")
    untold = msgspec.structs.replace(okta, token=msgspec.structs.replace(okta.token, grace_seconds=None))
    assert token_contract(untold).mode is Mode.STRICT


# --- keys ---------------------------------------------------------------------------------------------------------


def test_keys_come_from_the_environment_newest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    import base64

    first, second = bytes(32), bytes(range(32))
    texts = [base64.b64encode(key).decode() for key in (first, second)]
    monkeypatch.setenv(KEY_VARIABLE, f" {texts[0]} , {texts[1]}")
    assert keys_from_environment() == [first, second]
    assert list(Keys(keys_from_environment).at_hand()) == [key_id_of(first), key_id_of(second)]
    monkeypatch.setenv(KEY_VARIABLE, f"{texts[0]},not base64!")
    with pytest.raises(WrongKey, match="key 2"):
        keys_from_environment()
    monkeypatch.delenv(KEY_VARIABLE)
    with pytest.raises(WrongKey, match=KEY_VARIABLE):
        Keys(keys_from_environment).at_hand()


def test_a_key_that_is_none_is_refused_without_being_shown() -> None:
    def broken() -> bytes:
        raise KeyError(SECRET)

    for source in (lambda: b"short-" + SECRET.encode(), lambda: [SECRET * 2], broken, list):
        with pytest.raises(WrongKey) as refused:
            Keys(source).at_hand()  # type: ignore[arg-type]
        assert SECRET not in str(refused.value) and refused.value.__cause__ is refused.value.__context__ is None


# --- chains -------------------------------------------------------------------------------------------------------


def test_names_that_live_in_stores_do_not_change() -> None:
    assert identity_of("gmail:acme", 2, 7) == "credential:gmail:acme/2.7"
    assert derive_key("default", "credential:gmail:acme/2.7") == PINNED
    assert key_id_of(bytes(range(32))) == "77d8e189"


PINNED = "b5efce0892234fdc43a1ab91924bb718"


@pytest.mark.parametrize("last", [*range(40), 1000, 8760])
@pytest.mark.parametrize("behind", [0, 1, 3, 10_000])
def test_the_newest_number_is_found_from_any_older_one(last: int, behind: int) -> None:
    reads: list[int] = []
    known = max(last - behind, 0)

    def read(number: int) -> Any:
        reads.append(number)
        return number if number <= last else None

    assert newest(read, known) == (last, last if last > known else None)
    assert len(reads) <= 2 * (last - known + 1).bit_length() + 1


def record(status: Status, kind: TokenContract, reason: str = "") -> Effect:
    return Effect(
        key="0" * 32, namespace="default", identity="i", name="n", run="", slot="s", status=status,
        contract=kind.contract, request=b"{}", request_digest=b"", sent_key="", timeout_seconds=1.0, budget_seconds=1.0,
        reason=reason,
    )  # fmt: skip


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("promise", [strict(), grace(600), reusable()], ids=["strict", "grace", "reusable"])
def test_every_status_of_a_refresh_means_something(status: Status, promise: TokenContract) -> None:
    harmless = promise.mode is Mode.REUSABLE
    expected = {
        Status.CONFIRMED: State.TOKEN,
        Status.COMPENSATED: State.TOKEN,
        Status.REFUSED: State.VOID,
        Status.PARKED: State.VOID if harmless else State.PARKED,
        Status.ABANDONED: State.VOID if harmless else State.DEAD,
    }.get(status, State.OPEN)
    assert state_of(record(status, promise)) is expected
    assert state_of(record(Status.REFUSED, promise, f"{DEAD} (invalid_grant)")) is State.DEAD
