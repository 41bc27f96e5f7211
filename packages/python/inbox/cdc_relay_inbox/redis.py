"""Reads Redis Streams with redis-py.

A stream is read in order by one process at a time, from the position in the database. There is no consumer group, because
its members would break the order of keys, and nothing is deleted: trim streams by age or length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from ._inbox import Inbox
from ._message import Message
from ._topics import WINDOW, Bounds, TopicsRunner

_WAIT_MS = 500
_OWN = ("key", "payload", "x-outbox-tombstone")  # fields beside the headers
_RENAMED = "header:"  # before headers that have their names
_SEQ_BITS = 22  # of an offset, for the second part of an id; in the relay's journal, too


class Runner(TopicsRunner):
    """Reads streams until stop. The caller closes the client, which must not decode responses."""

    def __init__(self, inbox: Inbox, streams: Sequence[str], client: redis.Redis, *, workers: int | None = None) -> None:
        if client.get_connection_kwargs().get("decode_responses"):
            raise ValueError("inbox: the client of Redis must not have decode_responses")
        super().__init__(inbox, streams, lambda name: _Stream(name, client), queue=False, workers=workers)


class _Stream:
    def __init__(self, name: str, client: Any) -> None:
        self._name, self._client, self._next = name, client, 0

    def bounds(self, next: int) -> Bounds:
        try:
            info = self._client.xinfo_stream(self._name)
        except redis.ResponseError as error:
            if "no such key" not in str(error):
                raise
            # Ids are times, so those of a stream that is created again lie behind.
            return Bounds("", next, unread=0, lost=f"stream {self._name} was deleted: whether all of it was read is unknown"
                          if next else "")
        last, entry, length = _offset_of(info["last-generated-id"]), info["first-entry"], info["length"]
        first = _offset_of(entry[0]) if entry else last + 1
        lost = first < next <= last or 0 < next < first
        return Bounds("", first, last + 1, 0 if next > last else length if next <= first else None,
                      self._lost(next, info) if lost else "")

    def _lost(self, next: int, info: dict[str, Any]) -> str:
        """What is trimmed goes from the front: while the last one that was read is there, nothing behind it was."""
        deleted = info.get("max-deleted-entry-id")  # neither is known before Redis 7
        if deleted == b"0-0" and info.get("entries-added") == info["length"]:
            return ""
        there = self._client.xrange(self._name, _id_of(next - 1), _id_of(next - 1))
        if there and (deleted is None or _offset_of(deleted) < next):
            return ""
        return (f"stream {self._name} may have lost entries behind {_id_of(next - 1)} before they were read: it was trimmed, "
                "or entries were deleted. Their effects would be missing")

    def seek(self, next: int) -> None:
        self._next = next

    def next(self) -> list[Message]:
        after = _id_of(max(self._next - 1, 0))
        read = self._client.xread({self._name: after}, WINDOW, _WAIT_MS)
        if not read:
            return []
        entries = next(iter(read.values())) if isinstance(read, dict) else read[0][1]
        if entries and isinstance(entries[0], list):  # of the protocol's version 3
            entries = entries[0]
        messages = [self._message(id, fields) for id, fields in entries]
        self._next = messages[-1].offset + 1 if messages else self._next
        return messages

    def _message(self, id: bytes, fields: dict[bytes, bytes]) -> Message:
        """Undo what the relay does to make an entry."""
        headers = {}
        for name, value in ((name.decode(errors="replace"), value) for name, value in fields.items()):
            if name not in _OWN:
                headers[name.removeprefix(_RENAMED)] = value.decode(errors="replace")
        return Message(self._name, 0, _offset_of(id), fields.get(b"key"), fields.get(b"payload"), headers)

    def beat(self) -> None: ...

    def settle(self) -> None: ...

    def close(self, _: bool) -> None: ...


def _offset_of(id: bytes | str) -> int:
    text = id.decode() if isinstance(id, bytes) else id
    ms, _, seq = text.partition("-")
    offset = int(ms) << _SEQ_BITS | int(seq or 0)
    if int(seq or 0) >> _SEQ_BITS or offset >> 63:
        raise ValueError(f"the id {text} does not fit into an offset")
    return offset


def _id_of(offset: int) -> str:
    return f"{offset >> _SEQ_BITS}-{offset & (1 << _SEQ_BITS) - 1}"
