"""`put`: one row in the user's own transaction.

What could not be delivered is refused before anything is written: the arguments are encoded and read back as the effect
will read them, and the identity is fixed now, not when it is sent.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, cast

from ..core.contract import Kind
from ..core.errors import UsageError
from ..core.ids import check_id
from ..effects.dbapi import Ran, dialect_of, execute, execute_async, is_async, refuse_autocommit
from ..effects.effect import Effect
from ..runtime.clock import random_uuid
from .row import State, row_of
from .table import clock, explained, queries

ID_CHARACTERS_MAX = 150
Statements = Generator[tuple[str, tuple[Any, ...]], Ran, str]


class Wanted(NamedTuple):
    """What a row says, checked."""

    id: str
    effect: str
    arguments: str
    identity: str
    ordered_by: str | None


def put(
    connection: Any,
    effect: Effect[..., Any],
    /,
    *args: Any,
    id: str | None = None,
    ordered_by: str | None = None,
    **kwargs: Any,
) -> str:
    """Want this effect, if your transaction commits; returns the row's id.

    `connection` is yours, in your transaction: nothing is committed here, and a rollback leaves nothing. `id` makes the
    row unique: the same id with the same request is the same row, with another request it is a UsageError. Rows with
    the same `ordered_by` are delivered one after the other, in the order of their puts. Raises UsageError or
    ValueRefused before anything is written: wrong arguments, a connection in autocommit mode, a database other than
    SQLite and PostgreSQL.
    """
    if is_async(connection):
        raise UsageError(f"{type(connection).__qualname__} is async; use `await outbox.put_async(...)`")
    flow = _put(connection, wanted(effect, args, kwargs, id, ordered_by), has_id=id is not None)
    statement, parameters = next(flow)
    while True:
        try:
            ran = execute(connection, statement, parameters)
        except Exception as error:
            raise explained(error) from error
        try:
            statement, parameters = flow.send(ran)
        except StopIteration as stop:
            return stop.value


async def put_async(
    connection: Any,
    effect: Effect[..., Any],
    /,
    *args: Any,
    id: str | None = None,
    ordered_by: str | None = None,
    **kwargs: Any,
) -> str:
    """`put` on SQLAlchemy's AsyncSession or AsyncConnection, an async psycopg connection, or aiosqlite."""
    if not is_async(connection):
        raise UsageError(f"{type(connection).__qualname__} is not async; use `outbox.put(...)`")
    flow = _put(connection, wanted(effect, args, kwargs, id, ordered_by), has_id=id is not None)
    statement, parameters = next(flow)
    while True:
        try:
            ran = await execute_async(connection, statement, parameters)
        except Exception as error:
            raise explained(error) from error
        try:
            statement, parameters = flow.send(ran)
        except StopIteration as stop:
            return stop.value


def wanted(
    effect: Effect[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], id: str | None, ordered_by: str | None
) -> Wanted:
    """The row's content; raises for whatever could not be delivered later."""
    if not isinstance(cast("Any", effect), Effect):
        raise UsageError(
            f"outbox.put(connection, effect, ...) needs a function decorated with @effect; found {effect!r}"
        )
    what = f"effect {effect.name!r}"
    if effect.is_method:
        raise UsageError(f"{what} is a method, and its instance is not recorded; write it as a function")
    if effect.contract.kind is Kind.LOOKUP and effect._lookup is None:  # pyright: ignore[reportPrivateUsage]
        raise UsageError(f"{what} has the contract lookup, but nothing to ask with; add @{effect.name}.lookup")
    _ = effect.codec  # a receipt that could not be read back is refused before the row is written
    bound = effect.arguments.bind(args, kwargs)
    content = effect.arguments.encode(bound)
    try:
        effect.arguments.restore(content)
    except UsageError as error:
        raise UsageError(f"these arguments of {what} could not be delivered; nothing was written: {error}") from None
    row_id = str(random_uuid()) if id is None else check_id(id, "the row's id")
    if len(row_id) > ID_CHARACTERS_MAX:
        raise UsageError(f"the row's id must have {ID_CHARACTERS_MAX} characters at most, found {len(row_id)}")
    if ordered_by is not None:
        check_id(ordered_by, "ordered_by")
    identity = effect._identity_of(bound)  # pyright: ignore[reportPrivateUsage]
    return Wanted(row_id, effect.name, content.decode(), identity, ordered_by)


def _put(connection: Any, row: Wanted, *, has_id: bool) -> Statements:
    """The statements that write the row, unless it is there already."""
    sql = queries(dialect_of(connection))
    refuse_autocommit(connection, "the outbox's row")
    if has_id:
        found = yield sql["find"], (row.id,)
        if found.rows:
            held = row_of(found.rows[0])
            if (held.effect, held.arguments, held.identity) != (row.effect, row.arguments, row.identity):
                raise UsageError(
                    f"the outbox has a row {row.id!r} with another request; nothing was written.\n"
                    f"  there: {held.effect}({held.arguments[1:-1][:200]})\n"
                    f"  asked: {row.effect}({row.arguments[1:-1][:200]})\n"
                    "Use another id for another effect."
                )
            return row.id
    values = (row.id, row.effect, row.arguments, row.identity, row.ordered_by, State.WAITING.value, clock.now())
    yield sql["put"], values
    return row.id
