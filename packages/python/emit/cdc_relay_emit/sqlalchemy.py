"""emit in a transaction of SQLAlchemy on Postgres."""

from __future__ import annotations

from sqlalchemy import Connection, TextClause, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from . import Event, parameters

_NAMES = ("aggregate_type", "aggregate_id", "event_type", "payload", "headers", "lock", "id")
_STATEMENT: TextClause = text("""SELECT emit(aggregate_type => CAST(:aggregate_type AS text),
    aggregate_id => CAST(:aggregate_id AS text), event_type => CAST(:event_type AS text),
    payload => CAST(CAST(:payload AS text) AS jsonb), headers => CAST(CAST(:headers AS text) AS jsonb),
    lock => CAST(:lock AS boolean), id => CAST(CAST(:id AS text) AS uuid))""").bindparams(
    *(bindparam(name) for name in _NAMES))


def emit(tx: Session | Connection, event: Event) -> str:
    """Write an event and return its id."""
    values = parameters(event)
    tx.execute(_STATEMENT, dict(zip(_NAMES, values, strict=True)))
    return values[-1]


async def emit_async(tx: AsyncSession | AsyncConnection, event: Event) -> str:
    """emit for asyncio."""
    values = parameters(event)
    await tx.execute(_STATEMENT, dict(zip(_NAMES, values, strict=True)))
    return values[-1]
