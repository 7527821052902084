"""Rules of credentials, each broken on purpose; tests/breaking.py does it, and says what counts as seen.

python -m tests.credentials.broken_on_purpose          # all
python -m tests.credentials.broken_on_purpose WORD     # those whose description holds the word
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

AREA = Area("src/surefoot/credentials", "tests/credentials")
CREDENTIAL, DOUBTS, CRASH_AT, RULES, SECRETS = (
    f"test_{name}.py" for name in ("credential", "doubts", "crash_at", "rules", "secrets")
)
CHANGES = [
    # --- what is given out ----------------------------------------------------------------------------------------
    Change(
        "the old token is given out while its refresh is under way or lost",
        "credential.py",
        "            if standing.state in (State.TOKEN, State.VOID) and held is not None:\n",
        "            if held is not None:\n",
        f"{CRASH_AT} -k refresh_that_dies_anywhere and forced",
    ),
    Change(
        "a token that a resource has turned down is given again",
        "credential.py",
        "                if held.access_token != refused and (",
        "                if (",
        f"{CREDENTIAL} -k turned_down",
    ),
    Change(
        "a token that is over is given out",
        "credential.py",
        "left > held.needed_seconds(min_seconds) or",
        "left > -1e9 or",
        f"{CREDENTIAL} -k die_too_soon",
    ),
    Change(
        "a token that lives shorter than asked for is refreshed each time",
        "token.py",
        "min(min_seconds, self.lifetime_seconds / 2)\n",
        "min_seconds\n",
        f"{CREDENTIAL} -k lives_shorter",
    ),
    Change(
        "a clock that was set back makes a dead token live",
        "token.py",
        "            age = max(age, boot_now - self.boot_at)\n",
        "            pass\n",
        f"{CREDENTIAL} -k set_back",
    ),
    Change(
        "a clock that was set back before a restart makes a dead token live",
        "token.py",
        "        elif age < -SKEW_SECONDS:\n",
        "        elif False:\n",
        f"{RULES} -k says_less",
    ),
    Change(
        "a life counts from the answer, not from the request",
        "exchange.py",
        "nothing of the original is carried along\n            return begun.keep(held_from(token, begun.moment,",
        "nothing of the original is carried along\n            scope = current.get()\n"
        "            assert scope is not None\n"
        "            return begun.keep(held_from(token, moment_of(scope.session.engine),",
        f"{CREDENTIAL} -k counts_from_the_request",
    ),
    Change(
        "the refresh token is lost when the answer brings no other",
        "token.py",
        "        refresh_token=token.refresh_token or refresh_token,\n",
        '        refresh_token=token.refresh_token or "",\n',
        f"{CREDENTIAL} -k stays_is_kept",
    ),
    # --- one exchange ---------------------------------------------------------------------------------------------
    Change(
        "a refresh that gave no token is never tried again",
        "exchange.py",
        "    return identity_of(credential, family, generation)\n",
        "    return identity_of(credential, family, previous + 1)\n",
        f"{DOUBTS} -k uses_nothing_up",
    ),
    Change(
        "a task that gives up cuts the exchange short",
        "credential.py",
        "                await asyncio.shield(self._flight(standing))\n",
        "                await self._flight(standing)\n",
        f"{CREDENTIAL} -k gives_up",
    ),
    Change(
        "a run's journal holds what was refreshed inside it",
        "exchange.py",
        "            with outside_any_run(engine):\n                yield self._effect.outcome\n",
        "            yield self._effect.outcome\n",
        f"{CREDENTIAL} -k records_no_token",
    ),
    Change(
        "an effect that gets no token counts as sent",
        "errors.py",
        "from ..core.errors import NotSent\n",
        "from ..core.errors import SurefootError as NotSent\n",
        f"{CREDENTIAL} -k gets_no_token",
    ),
    # --- lost answers ---------------------------------------------------------------------------------------------
    Change(
        "a refresh token that is good for one use is sent again",
        "contract.py",
        "                made = opaque(refused=())\n",
        "                made = natural(exists=(), refused=(), lag=0.0)\n",
        f"{DOUBTS} -k ends_a_strict_family",
    ),
    Change(
        "after a lost answer the next refresh sends the old token again",
        "chain.py",
        "State.VOID if harmless else State.PARKED\n",
        "State.VOID\n",
        f"{DOUBTS} -k ends_a_strict_family",
    ),
    Change(
        "the whole of a grace is relied on",
        "contract.py",
        "window_factor=0.5,",
        "window_factor=1.0,",
        f"{DOUBTS} -k half_of_the_grace",
    ),
    Change(
        "a grace whose length nobody knows is relied on",
        "contract.py",
        '        case "grace" if seconds:\n',
        '        case "grace":\n',
        f"{RULES} -k nobody_has_told",
    ),
    Change(
        "a refused client settles the try before it",
        "exchange.py",
        "        if _is_unresolved(attempt) and isinstance(meant, Refused) and not meant.reason.startswith(DEAD):\n",
        "        if False:\n",
        f"{DOUBTS} -k between_two_tries",
    ),
    Change(
        "an error of the provider means that nothing was sent",
        "answers.py",
        '    return ExchangeLost(": ".join(filter(None, (described(error), shown_status))))\n',
        '    return NotSent(": ".join(filter(None, (described(error), shown_status))))\n',
        f"{DOUBTS} -k ends_a_strict_family",
    ),
    Change(
        "a refused client ends the family",
        "chain.py",
        "            return State.DEAD if effect.reason.startswith(DEAD) else State.VOID\n",
        "            return State.DEAD\n",
        f"{DOUBTS} -k uses_nothing_up",
    ),
    Change(
        "a refused refresh token is sent again and again",
        "chain.py",
        "            return State.DEAD if effect.reason.startswith(DEAD) else State.VOID\n",
        "            return State.VOID\n",
        f"{DOUBTS} -k without_a_doubt",
    ),
    Change(
        "any refusal is one of the refresh token",
        "answers.py",
        "    if dead is not None:\n",
        '    if status in REFUSING_STATUSES:\n        dead = dead or "refused"\n    if dead is not None:\n',
        f"{RULES} -k no_refused_token",
    ),
    Change(
        "too many requests are taken for a refusal",
        "answers.py",
        "    if status == TOO_MANY:\n",
        "    if False:\n",
        f"{RULES} -k too_many",
    ),
    Change(
        "a refresh that a person gave up is tried again with the same token",
        "chain.py",
        "            return State.VOID if harmless else State.DEAD\n",
        "            return State.VOID\n",
        f"{RULES} -k means_something",
    ),
    Change(
        "what was given up is not asked for a late answer",
        "credential.py",
        "(state is State.PARKED and settled == standing.place)",
        "state is State.PARKED",
        f"{DOUBTS} -k late_answer",
    ),
    Change(
        "one call waits for the end of the whole window",
        "exchange.py",
        "        if attempt.number > 1 and engine.clock.lease_now() > _give_up_at.get():\n",
        "        if False:\n",
        f"{DOUBTS} -k than_its_budget",
    ),
    # --- authorizations -------------------------------------------------------------------------------------------
    Change(
        "a token that was used up is a new authorization",
        "families.py",
        "        if ended and contract.mode is not Mode.REUSABLE:\n",
        "        if False:\n",
        f"{DOUBTS} -k used_up_is_no_new",
    ),
    Change(
        "a new authorization leaves the doubts of the old one",
        "families.py",
        "        family = _free_family(reader, reader.look(opens=False).top)\n    close_older(reader, family)\n",
        "        family = _free_family(reader, reader.look(opens=False).top)\n",
        f"{DOUBTS} -k ends_a_strict_family",
    ),
    Change(
        "a new authorization during a refresh leaves its doubt",
        "credential.py",
        "            if standing.family > settled[0]:  #",
        "            if False:  #",
        f"{DOUBTS} -k during_a_refresh",
    ),
    Change(
        "the token in the code replaces the stored one at each start",
        "families.py",
        "    if not standing.family:\n        connect(reader",
        "    if True:\n        connect(reader",
        f"{DOUBTS} -k counts_only_where",
    ),
    Change(
        "a repeated reconnection begins another family",
        "families.py",
        "    if _is_known(reader, standing, token):\n",
        "    if False:\n",
        f"{DOUBTS} -k used_by_everybody",
    ),
    Change(
        "what is forgotten is given out",
        "standing.py",
        "            if head is not None and head.name == FORGET:\n                return top, family, True\n",
        "",
        f"{DOUBTS} -k given_out_nowhere",
    ),
    Change(
        "what is forgotten is not revoked",
        "families.py",
        "        if revoke is not None and held is not None:\n",
        "        if False:\n",
        f"{DOUBTS} -k given_out_nowhere",
    ),
    Change(
        "a doubt of what is forgotten stays",
        "families.py",
        "    outcome = _head(reader, FORGET, family, give)\n    close_older(reader, family)\n",
        "    outcome = _head(reader, FORGET, family, give)\n",
        f"{DOUBTS} -k leaves_no_doubt",
    ),
    Change(
        "a revocation that nobody confirmed passes for one",
        "families.py",
        "    if not isinstance(outcome, Confirmed):\n",
        "    if False:\n",
        f"{DOUBTS} -k revocation_that_nobody",
    ),
    Change(
        "a refresh token that is dead cannot be revoked",
        "families.py",
        "    if isinstance(told_as, Refused) and told_as.reason.startswith(DEAD):\n        return",
        "    if False:\n        return",
        f"{DOUBTS} -k revocation_that_nobody",
    ),
    # --- secrets --------------------------------------------------------------------------------------------------
    Change(
        "a secret is bound to no place",
        "sealing.py",
        'msgspec.json.encode(["surefoot-credential-v1", self, key_id])',
        'msgspec.json.encode(["surefoot-credential-v1", key_id])',
        f"{DOUBTS} -k own_place",
    ),
    Change(
        "each secret has the same nonce",
        "sealing.py",
        "hashlib.blake2b(random_uuid().bytes, digest_size=NONCE_BYTES).digest()",
        "hashlib.blake2b(b'', digest_size=NONCE_BYTES).digest()",
        f"{DOUBTS} -k own_place",
    ),
    Change(
        "a token that was received is lost when there is no key",
        "exchange.py",
        "msgspec.to_builtins(seal(msgspec.json.encode(held), place)))",
        "msgspec.to_builtins(self._keys.sealer()(msgspec.json.encode(held), place)))",
        f"{DOUBTS} -k vault",
    ),
    Change(
        "the text of an exception is kept",
        "answers.py",
        '    return f"{type(error).__name__}{where}"\n',
        '    return f"{type(error).__name__}{where}: {error}"\n',
        f"{SECRETS} -k found_anywhere and strict",
    ),
    Change(
        "an error code that is a secret is kept",
        "answers.py",
        " and code not in hidden]\n",
        "]\n",
        f"{RULES} -k no_text_of",
    ),
    Change(
        "a token shows its texts",
        "token.py",
        '    access_token: str = field(default="", repr=False)\n',
        '    access_token: str = field(default="")\n',
        f"{RULES} -k shows_no_secret",
    ),
    Change(
        "what is kept of a token shows it",
        "token.py",
        'f"Held(lifetime_seconds=',
        'f"Held(access_token={self.access_token}, lifetime_seconds=',
        f"{RULES} -k says_less",
    ),
    Change(
        "an old key seals",
        "sealing.py",
        "        key_id, key = next(iter(self.at_hand().items()))\n",
        "        key_id, key = list(self.at_hand().items())[-1]\n",
        f"{DOUBTS} -k rotated",
    ),
    Change(
        "a receipt that a person typed in is shown",
        "standing.py",
        "        except msgspec.MsgspecError:  # its text could hold what a person put there\n            pass\n",
        "        except msgspec.MsgspecError as error:\n"
        "            raise ValueError(self._fetch(effect.receipt if effect else b'')) from error\n",
        f"{SECRETS} -k typed_in",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
