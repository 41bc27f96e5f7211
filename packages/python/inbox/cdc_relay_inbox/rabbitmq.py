"""Reads queues of RabbitMQ with pika.

A queue is read by one process at a time, and a message leaves it when its event is decided: done, parked or dead. So a
restored database is not filled up again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pika

from ._inbox import Inbox
from ._message import Message
from ._topics import WINDOW, Bounds, TopicsRunner

_WAIT = 0.5
_UNKNOWN = 2**63 - 1
"""A delivery tag that no message has."""
_CLOSING = 5.0  # seconds


class Runner(TopicsRunner):
    """
    Reads queues until stop, each by a connection of its own.

    No other program may consume them. Quorum queues need x-single-active-consumer.
    """

    def __init__(self, inbox: Inbox, queues: Sequence[str], parameters: pika.connection.Parameters, *,
                 workers: int | None = None) -> None:
        super().__init__(inbox, queues, lambda name: _Queue(name, parameters), queue=True, workers=workers)


class _Queue:
    def __init__(self, name: str, parameters: pika.connection.Parameters) -> None:
        self._name = name
        self._connection = pika.BlockingConnection(parameters)
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=2 * WINDOW)
        self._asking = self._connection.channel()
        self._arrived: deque[Any] = deque()
        self._consuming = self._cancelled = False
        self._last = self._settled = self._newest = 0  # delivery tags: of what next returned, was settled, has arrived
        # RabbitMQ has no position. A later process's numbers are higher.
        self._first = self._offset = time.time_ns() // 1000

    def bounds(self, next: int) -> Bounds:
        return Bounds("queue", self._first, unread=self._look().message_count)

    def _look(self) -> Any:
        return self._asking.queue_declare(self._name, passive=True).method

    def seek(self, next: int) -> None:
        """Begin when no other consumer is there: what one has that died goes back to its place before it is gone."""
        if others := self._look().consumer_count:
            raise RuntimeError(f"queue {self._name} has {others} other consumers: stop them")
        self._channel.add_on_cancel_callback(self._cancel)
        self._consuming = True
        self._channel.basic_consume(self._name, self._arrive, exclusive=True)

    def _cancel(self, _: Any) -> None:
        self._cancelled = True

    def _arrive(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        self._newest = method.delivery_tag
        self._arrived.append((method, properties, body))

    def next(self) -> list[Message]:
        self._connection.process_data_events(0 if self._arrived else _WAIT)
        if self._cancelled:
            raise RuntimeError(f"RabbitMQ has ended the consumer of queue {self._name}: was it deleted?")
        messages: list[Message] = []
        while self._arrived and len(messages) < WINDOW:
            method, properties, body = self._arrived.popleft()
            self._last = method.delivery_tag
            messages.append(self._message(properties, body))
        return messages

    def _message(self, properties: Any, body: bytes) -> Message:
        """Undo what the relay does to make a message."""
        headers: dict[str, str] = {}
        key: bytes | None = None
        value: bytes | None = body
        if properties.message_id:
            headers["id"] = properties.message_id
        if properties.type:
            headers["event_type"] = properties.type
        for name, of in (properties.headers or {}).items():
            text = of if isinstance(of, bytes) else b"" if of is None else str(of).encode(errors="replace")
            if name == "x-outbox-key":
                key = text
            elif name == "x-outbox-tombstone":
                value = None
            else:
                headers[name] = text.decode(errors="replace")
        self._offset += 1
        return Message(self._name, 0, self._offset - 1, key, value, headers)

    def beat(self) -> None:
        self._connection.process_data_events(0)

    def settle(self) -> None:
        self._channel.basic_ack(self._last, multiple=True)
        self._settled = self._last

    def close(self, orderly: bool) -> None:
        if self._consuming and not (orderly and self._settled == self._newest):
            self._give_back()
        self._connection.close()

    def _give_back(self) -> None:
        """
        Have the broker end the channel, which gives back all messages at once, each to its place.

        pika would cancel the consumer first, and reject what arrives meanwhile: younger messages before the older ones
        that are held here.
        """
        with suppress(pika.exceptions.ChannelClosed, pika.exceptions.ChannelWrongStateError):
            self._channel.basic_ack(_UNKNOWN)
        until = time.monotonic() + _CLOSING
        while self._channel.is_open:
            if time.monotonic() > until:  # left alone, the connection ends with its heartbeats
                raise TimeoutError(f"RabbitMQ does not close the channel of queue {self._name}")
            self._connection.process_data_events(_WAIT)
