"""Reads subjects of NATS JetStream with nats-py.

A subject is read in the stream's order by one process at a time, from the position in the database, without a consumer on
the server. So the stream must keep what was read.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import nats as client

from ._inbox import Inbox
from ._message import Message
from ._topics import WINDOW, Bounds, TopicsRunner

_POLL = 0.05  # while there is no message
_WAIT = 0.5
_PATIENCE = 10.0
_NO_MESSAGE = 10037  # the error's code
T = TypeVar("T")


class Runner(TopicsRunner):
    """Reads subjects until stop. options go to nats.connect: servers, user_credentials, tls and others."""

    def __init__(self, inbox: Inbox, subjects: Sequence[str], *, workers: int | None = None, **options: Any) -> None:
        for name in subjects:
            if any(c in "*> \t\r\n" for c in name):
                raise ValueError(f"inbox: the subject {name!r} has wildcards or blanks: name each subject")
        super().__init__(inbox, subjects, lambda name: _Subject(name, options), queue=False, workers=workers)


class _Subject:
    """The client is asynchronous: its loop has a thread of its own."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self._name = name
        self._next = 1
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name=f"inbox nats {name}", daemon=True).start()
        try:
            self._connection = self._ask(client.connect(**{"max_reconnect_attempts": -1, **options}))
            names = self._ask(self._api("STREAM.NAMES", subject=name)).get("streams")
            if not names:
                raise RuntimeError(f"no stream takes the subject {name}")
            self._stream = names[0]
            kept = self._ask(self._api(f"STREAM.INFO.{self._stream}"))["config"]["retention"]
            if kept != "limits":
                raise RuntimeError(f"stream {self._stream} of subject {name} has the retention {kept}, and deletes messages "
                                   "that the inbox would need again: make a stream with the retention limits that has it as "
                                   "its source")
        except BaseException:
            self._loop.call_soon_threadsafe(self._loop.stop)
            raise

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(question, _PATIENCE), self._loop).result()

    async def _api(self, question: str, **fields: Any) -> dict[str, Any]:
        # Not the client's functions, which leave parts of times and headers out.
        answer = await self._connection.request(f"$JS.API.{question}", json.dumps(fields).encode(), timeout=_PATIENCE)
        found: dict[str, Any] = json.loads(answer.data)
        error = found.get("error")
        if error and error.get("err_code") != _NO_MESSAGE:
            raise RuntimeError(f"{question} of NATS: {error.get('description')}")
        return found

    async def _message(self, **which: Any) -> Any:
        """Return a message of the stream, or None."""
        return (await self._api(f"STREAM.MSG.GET.{self._stream}", **which)).get("message")

    def bounds(self, next: int) -> Bounds:
        info = self._ask(self._api(f"STREAM.INFO.{self._stream}"))
        first, last = max(info["state"]["first_seq"], 1), info["state"]["last_seq"]
        latest = self._ask(self._message(last_by_subj=self._name))
        end = latest["seq"] + 1 if latest else first
        lost = ""
        if 0 < next < first and end > next:
            lost = (f"stream {self._stream} deleted messages, of subject {self._name} perhaps, before they were read, between "
                    f"{next} and {first - 1}. Their effects are missing")
        alone = info["config"].get("subjects") == [self._name]
        return Bounds(info["created"], first, last + 1, 0 if end <= next else end - max(next, first) if alone else None, lost)

    def seek(self, next: int) -> None:
        self._next = max(next, 1)

    def next(self) -> list[Message]:
        until = time.monotonic() + _WAIT
        while not (messages := self._ask(self._read())) and time.monotonic() < until:
            time.sleep(_POLL)
        return messages

    async def _read(self) -> list[Message]:
        """Read until there is no further one, or for a while."""
        messages: list[Message] = []
        until = time.monotonic() + _WAIT
        while len(messages) < WINDOW and time.monotonic() < until:
            raw = await self._message(seq=self._next, next_by_subj=self._name)
            if raw is None:
                break
            messages.append(_message(self._name, raw))
            self._next = messages[-1].offset + 1
        return messages

    def beat(self) -> None: ...

    def settle(self) -> None: ...

    def close(self, _: bool) -> None:
        try:
            self._ask(self._connection.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)


def _message(topic: str, raw: dict[str, Any]) -> Message:
    """Undo what the relay does to make a message."""
    headers = {}
    for line in base64.b64decode(raw.get("hdrs", "")).decode(errors="replace").split("\r\n")[1:]:
        name, separator, value = line.partition(":")
        if separator and not name.startswith("Nats-"):
            headers[name] = value.strip(" ")
    key, encoded = headers.pop("x-outbox-key", None), headers.pop("x-outbox-key-base64", None)
    tombstone = headers.pop("x-outbox-tombstone", None)
    as_bytes = base64.b64decode(encoded) if encoded is not None else None if key is None else key.encode()
    return Message(topic, 0, raw["seq"], as_bytes, None if tombstone else base64.b64decode(raw.get("data", "")), headers)
