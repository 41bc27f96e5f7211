"""Writes events into the outbox, in the transaction that makes them true.

It is one call of the SQL function emit, which `cdc-relay init --emit` creates. It neither begins nor ends a transaction.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["AsyncTransaction", "Event", "Transaction", "emit", "emit_async", "new_id", "parameters"]


@dataclass(frozen=True, kw_only=True)
class Event:
    """One row for the outbox. Events of one aggregate keep the order of their commits."""

    aggregate_type: str
    """Chooses the topic."""
    aggregate_id: str
    type: str
    payload: Any = None
    """Encoded as JSON. None: a tombstone. Bytes are refused: JSON holds them only as base64."""
    headers: Mapping[str, str] | None = None
    lock: bool = False
    """Locks the aggregate until the commit. Use it if the event depends on state that other transactions change."""
    id: str | None = None
    """A uuid. Default: a new one of version 7."""


class Transaction(Protocol):
    """A psycopg connection or cursor, or a cursor of Django."""

    def execute(self, query: str, params: Any, /) -> Any: ...


class AsyncTransaction(Protocol):
    """An asynchronous connection or cursor of psycopg."""

    async def execute(self, query: str, params: Any, /) -> Any: ...


_CALL = """SELECT emit(aggregate_type => {}::text, aggregate_id => {}::text, event_type => {}::text,
    payload => {}::text::jsonb, headers => {}::text::jsonb, lock => {}::boolean, id => {}::text::uuid)"""
CALL = _CALL.format(*["%s"] * 7)


def emit(tx: Transaction, event: Event) -> str:
    """Write an event and return its id. Pass the connection whose transaction changes what the event describes."""
    values = parameters(event)
    if getattr(tx, "autocommit", False) and tx.info.transaction_status == 0:  # type: ignore[attr-defined]
        raise ValueError("emit got a connection that has begun no transaction: use `with connection.transaction()`")
    tx.execute(CALL, values)
    return values[-1]


async def emit_async(tx: AsyncTransaction, event: Event) -> str:
    """emit for asyncio."""
    values = parameters(event)
    if getattr(tx, "autocommit", False) and tx.info.transaction_status == 0:  # type: ignore[attr-defined]
        raise ValueError("emit got a connection that has begun no transaction: use `async with connection.transaction()`")
    await tx.execute(CALL, values)
    return values[-1]


def parameters(event: Event) -> tuple[str, str, str, str | None, str | None, bool, str]:
    """Check an event and return the parameters of CALL. The last one is its id."""
    if not event.aggregate_type or not event.type:
        raise ValueError("emit: an event needs an aggregate_type and a type")
    if not isinstance(event.aggregate_id, str):
        raise TypeError(f"emit {event.type}: aggregate_id must be a str, got {type(event.aggregate_id).__name__}")
    headers = json.dumps(dict(event.headers)) if event.headers else None
    return (event.aggregate_type, event.aggregate_id, event.type, _encode(event), headers, event.lock,
            event.id or new_id())


def _encode(event: Event) -> str | None:
    if event.payload is None:
        return None
    if isinstance(event.payload, (bytes, bytearray, memoryview)):
        raise TypeError(f"emit {event.type}: the payload is bytes, which JSON can hold only as base64: "
                        "pass a dict, or put the encoded bytes into a field")
    return json.dumps(event.payload, ensure_ascii=False, allow_nan=False)


def new_id() -> str:
    """Return a uuid of version 7: nearly in the order of time, so that an index of them fills page by page."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))
