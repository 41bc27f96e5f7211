"""emit in a transaction of Django on Postgres."""

from __future__ import annotations

from django.db import connections

from . import CALL, Event, parameters


def emit(event: Event, using: str = "default") -> str:
    """Write an event and return its id. Call it inside `transaction.atomic()`."""
    connection = connections[using]
    if not connection.in_atomic_block:
        raise ValueError("emit was called outside of a transaction: use `with transaction.atomic()`")
    values = parameters(event)
    with connection.cursor() as cursor:
        cursor.execute(CALL, values)
    return values[-1]
