"""Handlers that are coroutines, and a runner for programs of asyncio.

The inbox works in threads, as without asyncio. A handler runs in the program's loop, with a psycopg.AsyncConnection in the
transaction that has claimed its event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import wait
from typing import Any, Protocol

from psycopg import AsyncConnection, AsyncCursor, Connection

from ._inbox import Handler
from ._message import Event

AsyncHandler = Callable[[Event, AsyncConnection[Any]], Awaitable[Any]]
"""Has an event's effect through the connection, and nowhere else: it runs again if the commit fails."""
_LOOK_EVERY = 0.5


def handler(function: AsyncHandler, loop: asyncio.AbstractEventLoop | None = None) -> Handler:
    """
    Return a handler for Inbox.on that runs a coroutine in a loop, without one the loop that runs now.

    The coroutine must end before the handler does: tasks that it leaves must not use the connection.
    """
    into = loop or asyncio.get_running_loop()

    def handle(event: Event, connection: Connection[Any]) -> None:
        with connection.lock:  # so that a handler that exceeds its time has a moment to end
            future = asyncio.run_coroutine_threadsafe(_call(function, event, connection), into)
            while not wait([future], _LOOK_EVERY).done:
                if connection.closed:
                    future.cancel()
            future.result()

    return handle


async def _call(function: AsyncHandler, event: Event, connection: Connection[Any]) -> None:
    pgconn = connection.pgconn
    noticed, notified = pgconn.notice_handler, pgconn.notify_handler
    lent: AsyncConnection[Any] = AsyncConnection(pgconn)
    lent._adapters, lent._autocommit = connection.adapters, connection.autocommit
    lent._num_transactions = connection._num_transactions  # commit and rollback are refused, and a transaction is a savepoint
    lent._pool = None  # it does not warn that nobody has closed it
    lent.prepare_threshold = None  # names of prepared statements are counted by each of the two
    watch = getattr(connection.cursor(), "_watch", None)
    if watch is not None:
        lent.cursor_factory = watch.cursor(AsyncCursor)
    try:
        await function(event, lent)
    except SystemExit as error:  # it would end the loop
        raise RuntimeError(f"the handler raised SystemExit: {error}") from error
    finally:
        pgconn.notice_handler, pgconn.notify_handler = noticed, notified


class Runner(Protocol):
    def run(self) -> None: ...
    def stop(self) -> None: ...


async def run(runner: Runner) -> None:
    """Run a runner of this package until it stops. If the task is cancelled, the handlers that run are waited for."""
    running = asyncio.ensure_future(asyncio.to_thread(runner.run))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        runner.stop()
        await running
        raise
