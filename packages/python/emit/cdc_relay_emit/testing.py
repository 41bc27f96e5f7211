"""Assertions on what was emitted, for tests with any test runner. The connection's role must see the outbox."""

from __future__ import annotations

import json
from typing import Any


def assert_emitted(connection: Any, type: str, key: str | None = None, match: dict[str, Any] | None = None,
                   table: str = "outbox_events") -> Any:
    """
    Raise AssertionError unless the outbox, as the transaction sees it, has such an event. Return its payload.

    key is the aggregate's id; match has fields that the payload must have, with these values.
    """
    emitted = _emitted(connection, table)
    for of, id, payload in emitted:
        fits = all(isinstance(payload, dict) and name in payload and payload[name] == value
                   for name, value in (match or {}).items())
        if of == type and key in (None, id) and fits:
            return payload
    raise AssertionError(f"no event {type} of {key or 'any aggregate'} with {match or {}} was emitted; the outbox has {emitted}")


def no_event_emitted(connection: Any, type: str | None = None, table: str = "outbox_events") -> None:
    """Raise AssertionError if the outbox, as the transaction sees it, has an event, or one of the type."""
    found = [event for event in _emitted(connection, table) if type in (None, event[0])]
    if found:
        raise AssertionError(f"no event should be emitted, but the outbox has {found}")


def _emitted(connection: Any, table: str) -> list[tuple[str, str, Any]]:
    found = connection.execute(f"SELECT json_build_array(event_type, aggregate_id, payload)::text FROM {table} ORDER BY id")
    return [tuple(json.loads(row[0])) for row in found.fetchall()]
