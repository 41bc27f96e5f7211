"""An inbox in memory, for tests of handlers with any test runner."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ._inbox import Handler, Outcome
from ._message import Event, Outage, Permanent


@dataclass
class Failed:
    """An event that is parked or dead, and why."""

    event: Event
    error: str


@dataclass
class MemoryInbox:
    """
    Each id once; a failing event and what follows of its key wait; dead letters after some attempts.

    Handlers get the connection that the test passes; nothing is rolled back when one fails.
    """

    connection: Any = None
    attempts: int = 5
    parked: list[Failed] = field(default_factory=list)
    dead: list[Failed] = field(default_factory=list)
    _handlers: dict[str, Handler] = field(default_factory=dict)
    _decided: set[str] = field(default_factory=set)

    def on(self, type: str, handler: Handler) -> MemoryInbox:
        self._handlers[type] = handler
        return self

    def deliver(self, type: str, payload: Any = None, *, key: str | None = None, id: str | None = None,
                headers: Mapping[str, str] | None = None) -> Outcome:
        """Hand an event in."""
        event = Event(id=id or str(uuid.uuid4()), source="", type=type, aggregate_type="", key=key, payload=payload,
                      headers=headers or {}, topic="test", partition=0, offset=len(self._decided), attempt=1, late=False,
                      replay=False)
        if event.id in self._decided:
            return "duplicate"
        self._decided.add(event.id)
        if key is not None and any(p.event.key == key for p in self.parked):
            self.parked.append(Failed(replace(event, attempt=0), ""))
            return "parked"
        parked = Failed(event, "")
        outcome = self._attempt(parked)
        if outcome == "parked":
            self.parked.append(parked)
        return outcome

    def retry(self) -> list[Outcome]:
        """Try the first parked event of each key once, whether it is due or not."""
        outcomes: list[Outcome] = []
        waiting, keys = list(self.parked), set()
        for parked in waiting:
            key = parked.event.key
            if key is not None and key in keys:
                continue
            keys.add(key)
            parked.event = replace(parked.event, attempt=parked.event.attempt + 1)
            outcome = self._attempt(parked)
            if outcome != "parked":
                self.parked.remove(parked)
            outcomes.append(outcome)
        return outcomes

    def _attempt(self, of: Failed) -> Outcome:
        handler = self._handlers.get(of.event.type)
        if handler is None:
            return "ignored"
        try:
            handler(of.event, self.connection)
        except Exception as error:
            of.error = str(error) or type(error).__name__
            if isinstance(error, Permanent) or of.event.attempt >= self.attempts and not isinstance(error, Outage):
                self.dead.append(of)
                return "dead"
            if isinstance(error, Outage):
                of.event = replace(of.event, attempt=of.event.attempt - 1)
            return "parked"
        return "done"
