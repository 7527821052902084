"""Rules of the outbox, each broken on purpose; tests/breaking.py does it, and says what counts as seen.

python -m tests.outbox.broken_on_purpose          # all
python -m tests.outbox.broken_on_purpose WORD     # those whose description holds the word
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

AREA = Area("src/surefoot/outbox", "tests/outbox")
PUTTING, DELIVERING, CLAIMS, CRASHES = (
    f"test_outbox_{name}.py" for name in ("putting", "delivering", "claims", "crashes")
)
CHANGES = [
    Change(
        "a connection that would commit the row alone is taken",
        "putting.py",
        '    refuse_autocommit(connection, "the outbox\'s row")\n',
        "",
        f"{PUTTING} -k commit_the_row_alone and sqlite",
    ),
    Change(
        "another request under one row's id is taken for the same",
        "putting.py",
        "            if (held.effect, held.arguments, held.identity) != (row.effect, row.arguments, row.identity):\n",
        "            if False:\n",
        f"{PUTTING} -k another_request_under_it and sqlite",
    ),
    Change(
        "arguments that nobody could deliver are written",
        "putting.py",
        "        effect.arguments.restore(content)\n    except",
        "        pass\n    except",
        f"{PUTTING} -k could_not_take",
    ),
    Change(
        "an effect that could never be asked about is written",
        "putting.py",
        "    if effect.contract.kind is Kind.LOOKUP and effect._lookup is None:",
        "    if False:",
        f"{PUTTING} -k delivered_by_name",
    ),
    Change(
        "tables that a newer Surefoot has made are used",
        "table.py",
        "    if held > VERSION:\n",
        "    if False:\n",
        f"{PUTTING} -k newer_one_is_refused and sqlite",
    ),
    Change(
        "the database is not part of a row's identity",
        "delivery.py",
        '    return row.identity or f"outbox:{database}:{row.id}"\n',
        '    return row.identity or f"outbox:{row.id}"\n',
        f"{DELIVERING} -k database_and_row",
    ),
    Change(
        "the business identity is ignored",
        "delivery.py",
        '    return row.identity or f"outbox:{database}:{row.id}"\n',
        '    return f"outbox:{database}:{row.id}"\n',
        f"{DELIVERING} -k one_business_identity",
    ),
    Change(
        "a row has another identity each time that it is looked at",
        "delivery.py",
        '    return row.identity or f"outbox:{database}:{row.id}"\n',
        '    return row.identity or f"outbox:{database}:{row.id}:{row.tries}:{row.claims}"\n',
        f"{CRASHES} -k any_boundary",
    ),
    Change(
        "a row is begun anew in a store that does not know it",
        "delivery.py",
        "    if row.effect_key and (held is None or row.effect_key != key):\n",
        "    if False:\n",
        f"{DELIVERING} -k another_store_began",
    ),
    Change(
        "a row whose effect is confirmed needs its code to be marked",
        "delivery.py",
        "    if held is not None and is_ended and (held.name, held.request_digest) == (row.effect, digest(content)):\n",
        "    if False:\n",
        f"{DELIVERING} -k only_marked",
    ),
    Change(
        "another request under an identity that was settled is marked as delivered",
        "delivery.py",
        " and (held.name, held.request_digest) == (row.effect, digest(content)):\n",
        ":\n",
        f"{DELIVERING} -k is_a_disagreement",
    ),
    Change(
        "an effect is begun although the code takes other arguments",
        "delivery.py",
        "        code.arguments.restore(content)  #",
        "        pass  #",
        f"{DELIVERING} -k no_longer_fit",
    ),
    Change(
        "a row in doubt is given up",
        "delivery.py",
        "            return Outcome(state=State.PARKED, key=settled.key, reason=told, again_seconds=PARKED_SECONDS)\n",
        "            return Outcome(state=State.ABANDONED, key=settled.key, reason=told)\n",
        f"{DELIVERING} -k waits_for_a_person",
    ),
    Change(
        "a row that waits holds up the others",
        "delivery.py",
        "        if isinstance(command, Sleep):\n",
        "        if False:\n",
        f"{DELIVERING} -k is_put_off",
    ),
    Change(
        "a deliverer keeps what it has put off",
        "delivery.py",
        "        engine.committer.commit(write)\n    reason",
        "    reason",
        f"{DELIVERING} -k is_put_off",
    ),
    Change(
        "a budget that was given is ignored",
        "delivery.py",
        "        use.budget_seconds = budget.total_seconds()\n",
        "        pass\n",
        f"{DELIVERING} -k until_its_budget_ends",
    ),
    Change(
        "a body that exits ends the deliverer",
        "delivery.py",
        "    except BaseException as error:  # on a thread",
        "    except Exception as error:  # on a thread",
        f"{DELIVERING} -k harms_no_other",
    ),
    Change(
        "rows in one order are sent at once: SQLite",
        "sqlite/queries.sql",
        "AND earlier.number < mine.number\n",
        "AND earlier.number < 0\n",
        f"{DELIVERING} -k one_after_the_other and sqlite",
    ),
    Change(
        "rows in one order are sent at once: PostgreSQL",
        "postgres/queries.sql",
        "AND earlier.number < mine.number\n",
        "AND earlier.number < 0\n",
        f"{DELIVERING} -k one_after_the_other and postgres",
    ),
    Change(
        "a row that kills its deliverer is tried for ever",
        "claims.py",
        "DEATHS_MAX = 5\n",
        "DEATHS_MAX = 1 << 20\n",
        f"{CRASHES} -k neighbours_are_not_blamed",
    ),
    Change(
        "rows that may have killed their deliverer are sent together",
        "deliverer.py",
        "        suspect = self.claims.take(1, suspects=True)\n",
        "        suspect = self.claims.take(room, suspects=True)\n",
        f"{CRASHES} -k neighbours_are_not_blamed",
    ),
    Change(
        "what the dead had claimed waits for its time",
        "claims.py",
        "            if owner != self._engine.owner and self._engine.look(owner).gone:\n",
        "            if False:\n",
        f"{CRASHES} -k taken_over_at_once",
    ),
    Change(
        "what a live deliverer has claimed is given to others",
        "claims.py",
        "            if owner != self._engine.owner and self._engine.look(owner).gone:\n",
        "            if owner != self._engine.owner:\n",
        f"{CLAIMS} -k is_left_to_it",
    ),
    Change(
        "a deliverer claims before anybody can tell that it lives",
        "deliverer.py",
        "            self._engine.join()\n",
        "",
        f"{CLAIMS} -k known_to_live",
    ),
    Change(
        "the business identity is made when a row is sent, not when it is put",
        "putting.py",
        "    identity = effect._identity_of(bound)  #",
        '    identity = ""  #',
        f"{DELIVERING} -k business",
    ),
    Change(
        "what a person has decided about a row is not looked at",
        "deliverer.py",
        "        deliverer.claims.wake()\n",
        "",
        f"{DELIVERING} -k waits_for_a_person",
    ),
    Change(
        "poison is woken with the rows that wait",
        "queries.sql",
        "WHERE ended_at IS NULL AND state <> 'waiting' AND due_at < ?;",
        "WHERE ended_at IS NULL AND state <> 'waiting' AND ? > 0;",
        f"{CRASHES} -k neighbours_are_not_blamed",
    ),
    Change(
        "a row is put off by one whose claim it is no more",
        "queries.sql",
        "WHERE id = ? AND claimed_by = ? AND ended_at IS NULL;",
        "WHERE id = ? AND '' <> ? AND ended_at IS NULL;",
        f"{CLAIMS} -k claim_has_lapsed",
    ),
    Change(
        "a row that has ended is ended otherwise",
        "queries.sql",
        "WHERE id = ? AND ended_at IS NULL;",
        "WHERE id = ?;",
        f"{CLAIMS} -k claim_has_lapsed",
    ),
    Change(
        "rows that were not delivered are forgotten, too",
        "queries.sql",
        "DELETE FROM surefoot_outbox WHERE state = 'delivered' AND",
        "DELETE FROM surefoot_outbox WHERE",
        f"{DELIVERING} -k kept_as_long",
    ),
    Change(
        "a row that is not stuck can be tried again by hand",
        "queries.sql",
        "effect_key = '', reason = ? WHERE id = ? AND state = 'stuck';",
        "effect_key = '', reason = ? WHERE id = ?;",
        f"{CLAIMS} -k by_hand",
    ),
    Change(
        "a row that is not stuck can be given up by hand",
        "queries.sql",
        "SET state = ?, ended_at = ?, reason = ? WHERE id = ? AND state = 'stuck';",
        "SET state = ?, ended_at = ?, reason = ? WHERE id = ?;",
        f"{CLAIMS} -k by_hand",
    ),
    Change(
        "an outage of the database ends the deliverer",
        "deliverer.py",
        "            except Exception as error:\n                failures += 1\n",
        "            except ZeroDivisionError as error:\n                failures += 1\n",
        f"{DELIVERING} -k waits_out",
    ),
    Change(
        "what landed is forgotten before it is marked",
        "deliverer.py",
        "        for claimed, outcome in landed:\n            self.claims.mark(claimed, outcome)\n",
        "        for _ in landed:\n            pass\n",
        f"{DELIVERING} -k delivered_once and sqlite",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
