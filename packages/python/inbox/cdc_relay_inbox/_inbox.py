"""Decides events, each once: its effect, its place among the parked, or its dead letter commits together with its id."""

from __future__ import annotations

import contextvars
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from psycopg import Connection
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool

from ._guard import Solitude, Watch
from ._ledger import Ledger, Since
from ._message import Event, Message, Outage, Permanent, Read, RetryAfter, SetBack, Unavailable, decode, read
from ._pace import Pace

Outcome = Literal["done", "ignored", "duplicate", "parked", "dead"]
"""How an event was decided. parked: it is tried again. duplicate: it was decided before."""
Handler = Callable[[Event, Connection[Any]], Any]
"""Has an event's effect through the connection, and nowhere else: it runs again if the commit fails."""

_log = logging.getLogger("cdc_relay_inbox")
_MOST_LOSSES = 3  # sessions that an event may lose, with the server there, before that is its handler's fault
_UNTIL_TERMINATED = 5.0
_LONGEST_TOGETHER = 1.0  # of handlers in one transaction, before its events go by themselves
_MOST_ALONE = 2  # deaths of processes while it ran alone


class Metrics(Protocol):
    """What is counted; cdc_relay_inbox.prometheus implements it."""

    def processed(self, status: str, type: str) -> None: ...
    def retried(self, type: str) -> None: ...
    def handler_not_found(self, type: str) -> None: ...
    def took(self, type: str, seconds: float) -> None: ...
    def inflight(self, change: int) -> None: ...
    def lag(self, topic: str, partition: int, messages: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How often and when a failing event is tried. Delays are in seconds."""

    attempts: int = 5
    initial: float = 0.05
    """The first delay, doubled for each attempt."""
    longest: float = 300
    schedule: Sequence[float] | None = None
    """Explicit delays instead."""

    def most(self) -> int:
        return self.attempts if self.schedule is None else len(self.schedule) + 1

    def delay(self, attempt: int) -> float:
        if self.schedule is not None:
            return self.schedule[attempt - 1]
        return min(self.initial * 2 ** (attempt - 1) * random.uniform(0.8, 1.2), self.longest)


@dataclass
class _Run:
    r: Read
    attempt: int
    parked: bool
    since: Since | None


@dataclass
class _Failure:
    cause: BaseException
    lost: bool


class _TimedOut(Exception):
    def __init__(self, text: str, thread: threading.Thread) -> None:
        super().__init__(text)
        self.thread = thread


class _Thread:
    """Runs handlers in a thread of their own, so that the time of each is bounded."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._context = contextvars.copy_context()
        self._until: float | None = None  # of the handler that runs
        self._thread = threading.current_thread()

    def run(self, work: Callable[[], None]) -> None:
        """Run work, which calls handlers, and wait for it."""
        failed: list[BaseException] = []

        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)

        self._thread = thread = threading.Thread(target=guarded, daemon=True, name="inbox handler")
        thread.start()
        while thread.is_alive():
            until = self._until
            thread.join(self._timeout if until is None else max(0.0, until - time.monotonic()))
            if thread.is_alive() and until is not None and until == self._until and time.monotonic() >= until:
                raise _TimedOut(f"the handler took more than {self._timeout} s", thread)
        if failed:
            raise failed[0]

    def call(self, type: str, handler: Handler, event: Event, conn: Connection[Any]) -> None:
        """Call a handler, in the thread."""
        self._thread.name = f"inbox {type}"
        self._until = time.monotonic() + self._timeout
        try:
            self._context.copy().run(handler, event, conn)
        finally:
            self._until = None


class Inbox:
    """
    An inbox on a pool of psycopg. Create its tables with `cdc-relay init --inbox`.

    A handler runs only in the transaction that has claimed its event, and bookkeeping never does.
    """

    def __init__(self, pool: ConnectionPool[Any], name: str, *, schema: str = "public", retry: Retry | None = None,
                 handler_timeout: float = 30, unknown: Literal["ignore", "dead"] = "ignore", keep: float = 14 * 86_400,
                 max_batch: int = 100, metrics: Metrics | None = None) -> None:
        """
        max_batch: events in one transaction at most, fewer where that takes 20 ms; if it fails, each goes by itself.

        Times are in seconds.
        """
        retry = retry or Retry()
        problems = []
        if not name:
            problems.append("name must be the permanent name of this consumer")
        if pool.max_size < 3:
            problems.append("the pool needs max_size 3 or more")
        if min(retry.attempts, retry.initial, retry.longest, handler_timeout, keep, max_batch, *(retry.schedule or [0])) < 0:
            problems.append("durations and attempts must not be negative")
        if problems:
            raise ValueError("inbox: " + "; ".join(problems))
        self.ledger = Ledger(pool, name, schema)
        self.pool, self.name, self.keep, self.metrics = pool, name, keep, metrics
        self._retry, self._timeout, self._unknown = retry, handler_timeout, unknown
        self._handlers: dict[str, Handler] = {}
        self._solitude = Solitude()
        self.pace = Pace(max_batch)
        self._losses: dict[str, int] = {}
        self._noted: set[tuple[str, str]] = set()
        self.due_at = float("inf")
        """When the next event is due that this process has parked, by time.monotonic()."""

    def on(self, type: str, handler: Handler | None = None) -> Any:
        """Register the handler of a type of event, also as a decorator."""
        if not type:
            raise ValueError("inbox: on needs a type")
        if handler is None:
            return lambda function: self.on(type, function) and function
        if type in self._handlers:
            raise ValueError(f"inbox: {type} has a handler already")
        self._handlers[type] = handler
        return self

    @property
    def types(self) -> list[str]:
        return list(self._handlers)

    def handle(self, message: Message, careful: bool = False, since: Since | None = None) -> Outcome:
        """
        Decide a message: when it returns, that is committed.

        Unavailable: the database does not answer; hand the message in again. careful: an earlier process may have died of
        this message. With since it raises SetBack if the database was restored.
        """
        r = read(message)
        while True:
            outcome = self._guarded(r, careful, None, lambda: self._settled(*self._claimed(r, since)))
            if outcome is not None:
                return self._count(outcome, r)

    def handle_all(self, messages: Sequence[Message]) -> list[Outcome]:
        """Decide messages in their order, as handle does: several in one transaction where that goes well."""
        outcomes: list[Outcome] = []
        while len(outcomes) < len(messages):
            some = messages[len(outcomes):len(outcomes) + self.pace.next()]
            for m, outcome in zip(some, self.together(some), strict=True):
                outcomes.append(outcome or self.handle(m))
        return outcomes

    def together(self, messages: Sequence[Message], since: Since | None = None) -> list[Outcome | None]:
        """
        Decide messages in one transaction, as far as that goes well.

        None: hand that one in by itself, in this order. With since, which is for messages of one partition, it raises
        SetBack if the database was restored.
        """
        reads = [read(m) for m in messages]
        undecided: list[Outcome | None] = [None] * len(reads)
        if len(reads) < 2 or any(r.problem or self._unknown == "dead" and r.type not in self._handlers for r in reads):
            return undecided
        began = time.monotonic()
        try:
            with self._solitude.run(False):
                outcomes = self._claimed_together(reads, since)
        except (SetBack, KeyboardInterrupt):
            raise
        except BaseException as error:
            _log.info("%d events go by themselves: %s (%s)", len(reads), error, self.name)
            self.pace.failed(len(reads))
            return undecided
        self.pace.went(len(reads), time.monotonic() - began)
        return [outcome and self._count(outcome, r) for outcome, r in zip(outcomes, reads, strict=True)]

    def _claimed_together(self, reads: list[Read], since: Since | None) -> list[Outcome | None]:
        """Claim events, and have the effects of those that are new, all or none."""
        outcomes: list[Outcome | None] = [None] * len(reads)
        with self.ledger.connect() as conn:
            transaction, cursors, pid = conn.transaction(), conn.cursor_factory, 0
            watches: list[Watch] = []
            try:
                transaction.__enter__()
                places, pid = self.ledger.claim_together(conn, reads, since)
                thread = _Thread(self._timeout)

                def effects() -> None:
                    began = time.monotonic()
                    for n in places:
                        if watches and watches[-1].altered:
                            raise RuntimeError("a handler changes settings, and other events are in its transaction")
                        if time.monotonic() - began > _LONGEST_TOGETHER:
                            raise RuntimeError("the handlers take too long for one transaction")
                        watches.append(Watch())
                        conn.cursor_factory = watches[-1].cursor(cursors)
                        outcomes[n] = self._call(reads[n], 1, conn, thread)
                        _check(conn, watches[-1])

                thread.run(effects)
                conn.cursor_factory = cursors
                transaction.__exit__(None, None, None)
            except BaseException as cause:
                conn.cursor_factory = cursors
                self._roll_back(conn, transaction, pid, cause)
                raise
            finally:
                if any(watch.changed for watch in watches):
                    conn.close()
        if since and places:
            self.ledger.committed(reads[places[-1]], False)
        return outcomes

    def retry_due(self) -> Outcome | None:
        """Try a parked event whose time has come. None: none has."""
        while True:
            with self.ledger.connect() as conn:
                transaction = conn.transaction()
                transaction.__enter__()
                try:
                    taken = self.ledger.take(conn)
                except Unavailable:
                    conn.close()
                    raise
                if taken is None:
                    transaction.__exit__(None, None, None)
                    return None
                r, attempts, pid = taken
                if self.metrics:
                    self.metrics.retried(self._label(r.type))
                run = _Run(r, attempts + 1, True, None)
                outcome = self._guarded(r, True, conn.close, lambda: self._after(run, conn, transaction, pid))
            if outcome is not None:
                return self._count(outcome, r)

    def _after(self, run: _Run, conn: Connection[Any], transaction: Any, pid: int) -> Outcome | None:
        return self._settled(run, self._effect(conn, transaction, pid, run))

    def _guarded(self, r: Read, careful: bool, give_back: Callable[[], None] | None,
                 work: Callable[[], Outcome | None]) -> Outcome | None:
        """Run work beside others, or alone if processes died while they had the event. None: try again."""
        if not careful:
            with self._solitude.run(False):
                return work()
        name = (r.source, r.id)
        seen, alone = (0, 0) if name in self._noted else self.ledger.suspicion(r)
        with self._solitude.run(seen + alone > 0):
            if alone >= _MOST_ALONE:
                error = f"the process died {seen + alone} times while it handled this event"
                if give_back:
                    give_back()
                return "dead" if self.ledger.bury(r, give_back is not None, error, "process") else "duplicate"
            if name not in self._noted:
                self.ledger.suspect(r, seen + alone > 0)
            self._noted.add(name)
            outcome = work()
            if outcome is not None:
                with suppress(Unavailable):  # else it is handled alone next time
                    self.ledger.acquit(r)
                self._noted.discard(name)
            return outcome

    def _claimed(self, r: Read, since: Since | None) -> tuple[_Run, Outcome | _Failure]:
        """Claim an event and have its effect."""
        run = _Run(r, 1, False, since)
        with self.ledger.connect() as conn:
            transaction = conn.transaction()
            try:
                transaction.__enter__()
                state, pid = self.ledger.claim(conn, r, since)
                if state != "new":
                    if state == "behind":
                        self.ledger.park(conn, r, 0, "", None)
                    transaction.__exit__(None, None, None)
            except Exception as error:
                conn.close()
                if type(error).__module__.startswith("psycopg"):
                    raise Unavailable(f"claim an event: {error}") from error
                raise
            if state == "new":
                return run, self._effect(conn, transaction, pid, run)
            if state == "behind" and since:
                self.ledger.committed(r, True)
            return run, "parked" if state == "behind" else "duplicate"

    def _effect(self, conn: Connection[Any], transaction: Any, pid: int, run: _Run) -> Outcome | _Failure:
        """Run the handler in the connection's transaction, and end it."""
        r, watch, cursors = run.r, Watch(), conn.cursor_factory
        try:
            conn.cursor_factory = watch.cursor(cursors)
            thread = _Thread(self._timeout)
            outcome: list[Outcome] = []
            thread.run(lambda: outcome.append(self._call(r, run.attempt, conn, thread)))
            conn.cursor_factory = cursors
            _check(conn, watch)
            if run.parked and not self.ledger.done(conn, r):
                raise RuntimeError("the event is not parked any more")
            transaction.__exit__(None, None, None)
            self._losses.pop(r.id, None)
            if run.since:
                self.ledger.committed(r, False)
            return outcome[0]
        except BaseException as cause:
            conn.cursor_factory = cursors
            failure = _Failure(cause, self._roll_back(conn, transaction, pid, cause))
            if isinstance(cause, KeyboardInterrupt):
                raise
            return failure
        finally:
            if watch.changed:
                conn.close()

    def _call(self, r: Read, attempt: int, conn: Connection[Any], thread: _Thread) -> Outcome:
        """Run the handler of an event, if there is one, in the thread."""
        began = time.monotonic()
        if self.metrics:
            self.metrics.inflight(1)
        try:
            handler = self._handler_of(r)
            event = decode(r, attempt)
            if not handler:
                return "ignored"
            thread.call(event.type, handler, event, conn)
            return "done"
        finally:
            if self.metrics:
                self.metrics.inflight(-1)
                self.metrics.took(self._label(r.type), time.monotonic() - began)

    def _roll_back(self, conn: Connection[Any], transaction: Any, pid: int, cause: BaseException) -> bool:
        """End a failed transaction, and report whether its session was lost. The error's type says nothing about that."""
        if isinstance(cause, _TimedOut):
            try:
                self.ledger.terminate(pid)
            finally:
                if conn.lock.locked():
                    cause.thread.join(_UNTIL_TERMINATED)  # its statement ends with the session
                conn.close()
            return False
        try:
            transaction.__exit__(type(cause), cause, cause.__traceback__)
        except Exception as error:
            if error is not cause and not conn.closed:
                conn.close()
                return False
        return conn.closed

    def _settled(self, run: _Run, result: Outcome | _Failure) -> Outcome | None:
        """Decide what becomes of an event that failed. None: it is to be tried at once."""
        if not isinstance(result, _Failure):
            return result
        r, cause = run.r, result.cause
        if result.lost:
            self._losses[r.id] = self._losses.get(r.id, 0) + 1
            if self._losses[r.id] < _MOST_LOSSES:
                return None
        self._losses.pop(r.id, None)
        error = str(cause) or type(cause).__name__
        if isinstance(cause, Permanent) or run.attempt >= self._retry.most() and not isinstance(cause, Outage):
            kind = "permanent" if isinstance(cause, Permanent) else "exhausted"
            mine = self.ledger.bury(r, run.parked, error, kind, run.since)
            if mine and run.since:
                self.ledger.committed(r, True)
            if mine:
                _log.error("event moved to the dead letters: %s (%s %s of %s)", error, r.type, r.id, self.name)
            return "dead" if mine else "duplicate"
        _log.warning("attempt %d: %s (%s %s of %s)", run.attempt, error, r.type, r.id, self.name)
        delay = cause.delay if isinstance(cause, RetryAfter) else 1.0 if isinstance(cause, Outage) else \
            self._retry.delay(run.attempt)
        self.due_at = min(self.due_at, time.monotonic() + delay)
        if not run.parked:
            mine = self.ledger.park_failed(r, 0 if isinstance(cause, Outage) else run.attempt, error, delay, run.since)
            if mine and run.since:
                self.ledger.committed(r, True)
        elif isinstance(cause, Outage):
            self.ledger.wait(r, error, delay)
            mine = True
        else:
            mine = self.ledger.retry_later(r, error, delay)
        return "parked" if mine else "duplicate"

    def _handler_of(self, r: Read) -> Handler | None:
        handler = self._handlers.get(r.type)
        if handler is None and not r.problem:
            if self.metrics:
                self.metrics.handler_not_found(r.type)
            if self._unknown == "dead":
                raise Permanent(f"no handler for type {r.type!r}")
        return handler

    def _label(self, type: str) -> str:
        return type if type in self._handlers else "unknown"

    def _count(self, outcome: Outcome, r: Read) -> Outcome:
        if self.metrics and outcome != "parked":
            self.metrics.processed(outcome, self._label(r.type))
        return outcome


def _check(conn: Connection[Any], watch: Watch) -> None:
    """Look at the transaction, whatever the handler returned."""
    if watch.refused:
        raise watch.refused
    status = conn.pgconn.transaction_status
    if status == TransactionStatus.INERROR:
        raise RuntimeError("a statement failed and the handler went on, so Postgres rolls back")
    if status != TransactionStatus.INTRANS:
        raise RuntimeError("the handler ended the transaction, which is the inbox's")
