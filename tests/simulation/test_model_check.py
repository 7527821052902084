"""The effect protocol, every state of it: two workers, one effect, one receiver, one person, and everything that fails.

The rules that run here are the real ones (see `protocol`, `workers`); the receivers are in `world`. Every planted bug
must be found, and tells its shortest story (`pytest -s -k planted` prints them all).

Each rule is broken on purpose. The mutation, and the test that goes red (`found: x` is
`test_a_planted_bug_is_found[x]`, `rule: x` is `test_a_rule_holds_and_its_mutation_is_caught[x]`):

| rule | mutation | what goes red |
|---|---|---|
| R1 recorded once | a replay forgets a recorded entry | rule: `recorded_once` |
| R1 recorded once | a write that is tried again does not know itself | found: `stamp_ignored` |
| R2 the barrier | unread entries of the branch do not hold an effect back | rule: `barrier` |
| R2 the barrier | the intent is not in the journal when the request leaves | found: `intent_not_recorded` |
| R3 identity before generation | the key is derived from the arguments too | rule: `identity` |
| R4 the stored request | another request under the same identity is accepted | found: `other_request_accepted` |
| R4 the stored request | a resend goes out under a fresh key | found: `fresh_key_at_resend` |
| R5 no blind resend, opaque | an opaque effect in doubt is sent again | found: `opaque_resent` |
| R5 no blind resend, opaque | a takeover does not put the attempt in doubt | found: `takeover_without_doubt` |
| R5 no blind resend, lookup | an empty answer counts before the attempt has settled | found: `settling_ignored` |
| R5 no blind resend, lookup | one clear no is enough | found: `one_no_is_enough` |
| R5 no blind resend, keyed | the window counts from the last attempt | found: `window_from_the_last_attempt` |
| R5 no blind resend, keyed | the whole window is relied on | found: `margin_ignored` |
| R5 no blind resend, keyed | an attempt may begin at any time | found: `begin_until_ignored` |
| R5 no blind resend, all | a refusal after an unresolved send is believed | found: `late_refusal_trusted` |
| R5 no blind resend, all | an unsent retry makes the earlier send forgotten | found: `unsent_forgets_the_doubt` |
| R6 never lost, never silent | what only a person can tell is never parked | found: `never_parked` |
| R6 never lost, never silent | a late answer is thrown away | found: `late_evidence_dropped` |
| R6 never lost, never silent | a person may decide what is not parked | found: `decision_when_not_parked` |
| R6 never lost, never silent | a new owner waits for a former one that woke up | found: `former_owner_respected` |
| R7 one owner | the effect's fence is not checked | found: `effect_fence_unchecked` |
| R7 one owner | the run's fence is not checked | found: `run_fence_unchecked` |
| R7 one owner | an effect is taken without asking who holds it | found: `owner_unchecked` |
| R7 one owner | the fence stays when an effect is parked or ends | found: `fence_kept_at_the_end` |
| R7 one owner | a late answer settles the effect at once | found: `late_evidence_settles` |
| R10 recording is not acting | an unknown commit is taken for committed | found: `unknown_taken_for_committed` |
| R10 recording is not acting | an error while recording runs the step again | rule: `recording` |

Limits of the model: one effect; two workers; at most two requests on their way; a clock that all share; a send, and a
lookup's answer, are instants; one stale lookup in a receiver's life; a request of a receiver that can be asked, or that
forgets keys, is on its way no longer than its attempt's deadline. Unknown commits are looked at where time plays no
great part, and are settled before time passes. The rest is for the simulation with the real runtime.
"""

from __future__ import annotations

import os

import pytest

from surefoot.core import policy

from .explore import explore
from .moves import Moves
from .planted import BUGS, Bug
from .records import SETTINGS
from .story import tell

ALL = bool(os.environ.get("SUREFOOT_MODEL_ALL"))
"""With it, every setting is searched both ways, unknown commits included: some minutes, some million states."""

ONE_RUN, TWO_RUNS = False, True
EVERY_PUSH = (
    ("keyed", TWO_RUNS, False),
    ("keyed, stores refusals", TWO_RUNS, False),
    ("natural", TWO_RUNS, False),
    ("natural, owned", TWO_RUNS, False),
    ("natural, owned", ONE_RUN, False),
    ("lookup", ONE_RUN, False),
    ("lookup", TWO_RUNS, False),
    ("opaque", ONE_RUN, True),
    ("opaque", TWO_RUNS, True),
    ("opaque, at least once", TWO_RUNS, False),
    ("same transaction", ONE_RUN, False),
    ("same transaction", TWO_RUNS, True),
)
SEARCHES = [(name, two, unsure) for name in SETTINGS for two in (ONE_RUN, TWO_RUNS) for unsure in (False, True)]


@pytest.fixture(autouse=True)
def one_lookup_error_parks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight errors in a row are one too many states; the rule is the same with one."""
    monkeypatch.setattr(policy, "LOOKUP_ERRORS_MAX", 1)


@pytest.mark.timeout(1800 if ALL else 300)
@pytest.mark.parametrize(("name", "two_runs", "unsure"), SEARCHES if ALL else EVERY_PUSH)
def test_every_state_keeps_every_rule_and_none_is_stuck(name: str, two_runs: bool, unsure: bool) -> None:
    graph = Moves(SETTINGS[name], two_runs=two_runs, unsure=unsure)
    found = explore(graph)
    print(f"\n{name}: {found.states:,} states, {found.moves:,} moves, {found.seconds:.1f} s; ends {dict(found.ends)}")
    assert not found.broken, "\n" + tell(graph, found)
    assert found.ends["confirmed"] and found.ends["refused"], "a search that reaches no end proves nothing"
    assert found.ends["parked"], "every contract can come to where only a person can tell"


@pytest.mark.parametrize("bug", BUGS, ids=[bug.plant.__name__ for bug in BUGS])
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    graph = Moves(
        SETTINGS[bug.where],
        two_runs=bug.two_runs,
        unsure=bug.unsure,
        drops=bug.drops,
        second_request=bug.second_request,
    )
    found = explore(graph, states_max=100_000)
    story = tell(graph, found)
    print(f"\n{bug.name}: found after {found.states:,} states, {found.seconds:.1f} s\n{story}")
    assert found.broken.startswith(bug.breaks), story
    assert found.way, "the bug has a story"
    assert all(line.rstrip().endswith((".", ":")) for line in story.splitlines()[:-1]), "told in sentences"


def test_there_are_enough_planted_bugs_and_each_is_another() -> None:
    assert len({bug.plant for bug in BUGS}) == len(BUGS) >= 12


def test_two_requests_under_one_identity_keep_every_rule_and_only_one_ever_leaves() -> None:
    graph = Moves(SETTINGS["opaque"], two_runs=True, unsure=True, second_request=True)
    found = explore(graph)
    assert not found.broken, "\n" + tell(graph, found)
