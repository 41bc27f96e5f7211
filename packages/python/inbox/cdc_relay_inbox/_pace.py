"""Decides how many events go into one transaction, and which."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from ._message import Message

_TARGET = 0.02  # seconds, of a transaction with several events
_WAIT_AFTER_SLOW = 100  # events, until two are tried together again
_WAIT_AT_MOST = 1_000


class Pace:
    """As many events as handlers manage in the target's time; threads may use it at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._each = _TARGET / 8  # what one event takes, smoothed
        self._alone = 0
        self._failures = 0
        self._lock = threading.Lock()

    def next(self) -> int:
        """Return how many events the next transaction is for."""
        if self._most < 2:
            return 1
        with self._lock:
            if self._alone == 0:
                return min(self._most, max(2, int(_TARGET / self._each)))
            self._alone -= 1
            return 1

    def went(self, events: int, took: float) -> None:
        """Take in that so many events were committed together. A pause of the machine counts little."""
        with self._lock:
            self._failures = 0
            self._each += (min(took / events, self._each * 4) - self._each) / 4
            if self._each * 2 > _TARGET:
                self._alone = _WAIT_AFTER_SLOW

    def failed(self, events: int) -> None:
        """Take in that so many could not be committed together: they go by themselves, and others for a while."""
        with self._lock:
            self._alone = min(_WAIT_AT_MOST, events * 2 ** min(self._failures, 10))
            self._failures += 1


class Lanes:
    """Messages that wait, those of one key in order. Threads take portions of them; those without a key have no order."""

    def __init__(self, messages: Iterable[Message]) -> None:
        lanes: dict[bytes | int, list[Message]] = {}
        for m in messages:
            lanes.setdefault(m.offset if m.key is None else m.key, []).append(m)
        self._waiting = deque(lanes.values())
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, most: int) -> tuple[list[Message], list[Message]]:
        """Return at most so many messages, and the rest of their last lane: give it back when they are decided."""
        portion: list[Message] = []
        rest: list[Message] = []
        with self._lock:
            while self._waiting and len(portion) < most:
                lane = self._waiting.popleft()
                room = most - len(portion)
                portion += lane[:room]
                rest = lane[room:]
        return portion, rest

    def give_back(self, rest: list[Message]) -> None:
        """Let the rest of a lane be taken."""
        if rest:
            with self._lock:
                self._waiting.appendleft(rest)
