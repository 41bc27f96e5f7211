"""Messages as brokers deliver them, and events as handlers get them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Permanent(Exception):
    """The event can never be handled: it becomes a dead letter at once."""


class Outage(Exception):
    """What the handler needs is away. The event is tried again, and no attempt is counted."""


class RetryAfter(Exception):
    """A failed attempt whose next one comes after a delay, in seconds."""

    def __init__(self, delay: float, *args: object) -> None:
        super().__init__(*args)
        self.delay = delay


class Unavailable(Exception):
    """The inbox's own statements failed, so the event is not decided. Hand the message in again."""


class SetBack(Exception):
    """The database has less than this process committed: it was restored. Read again from the stored offsets."""


@dataclass(frozen=True)
class Message:
    """A message as a broker delivered it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """What a handler gets."""

    id: str
    """The same in every message of the event."""
    source: str
    """The outbox in which ids that are not uuids are unique."""
    type: str
    aggregate_type: str
    key: str | None
    """None: the event has no order."""
    payload: Any
    """None: a tombstone, or JSON null."""
    headers: Mapping[str, str]
    topic: str
    partition: int
    offset: int
    attempt: int
    """From 1."""
    late: bool
    """It may come after later events of its key."""
    replay: bool
    """A dead letter that was replayed; late too."""


@dataclass
class Read:
    """A message with what the relay's headers or its envelope say. problem: why it can't be handled."""

    message: Message
    id: str
    source: str
    type: str
    aggregate_type: str
    body: bytes | None
    problem: str = ""
    uuid: bool = False
    """Its id is one, which is unique without its source."""


_LONGEST_ID = 2688  # bytes that an entry of the tables' keys holds
_UUID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_UNFIT = re.compile(r"[\0\ufffd\ud800-\udfff]")  # what Postgres can't hold, or what stands for it


def is_uuid(id: str) -> bool:
    """Report what the function inbox_is_uuid does."""
    return _UUID.fullmatch(id) is not None


def _first(headers: Mapping[str, str], *names: str) -> str:
    for name in names:
        if name in headers:
            return headers[name]
    return ""


def read(message: Message) -> Read:
    """Read the relay's formats, plain, CloudEvents and envelope, and that of Debezium's outbox router."""
    headers = message.headers
    position = headers.get("x-outbox-source", "").split("/")
    r = Read(message=message, body=message.value,
             id=_first(headers, "id", "ce_id", "x-event-id"), type=_first(headers, "event_type", "ce_type", "eventType"),
             aggregate_type=_first(headers, "aggregate_type", "ce_aggregatetype"),
             # The timeline is left out, which changes in a failover.
             source=f"{position[0]}/{position[2]}" if len(position) == 3 else "/".join(position))
    if not r.id:
        _open(r)
    unfit = [text for text in (r.id, r.source)
             if len(text.encode(errors="replace")) > _LONGEST_ID or _UNFIT.search(text)]
    if r.id and unfit:
        r.problem = (f"its id or source {unfit[0][:100]!r} is longer than {_LONGEST_ID} bytes or not text that Postgres "
                     "can hold")
    if not r.id or unfit:  # its place is what tells it from others
        r.id = f"{message.topic}/{message.partition}/{message.offset}"
        r.source = f"topic {message.topic}"[:_LONGEST_ID]
    r.uuid = is_uuid(r.id)
    if r.uuid:
        r.source = ""
    return r


def _open(r: Read) -> None:
    """Take the payload out of an envelope, if the value is one."""
    if not r.body or not r.body.startswith(b"{"):
        return
    try:
        envelope = json.loads(r.body)
    except ValueError:
        return  # it was a guess
    if "id" not in envelope or "payload" not in envelope:
        return
    r.id = str(envelope["id"])
    r.type = r.type or str(envelope.get("type", ""))
    r.aggregate_type = r.aggregate_type or str(envelope.get("aggregate_type", ""))
    r.body = json.dumps(envelope["payload"]).encode()


def decode(r: Read, attempt: int) -> Event:
    """Return the event for the handler. Permanent: the payload is not JSON."""
    if r.problem:
        raise Permanent(r.problem)
    m = r.message
    try:
        payload = None if r.body is None else _JSON.decode(r.body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Permanent(f"the payload is not JSON: {error}") from error
    return Event(id=r.id, source=r.source, type=r.type, aggregate_type=r.aggregate_type,
                 key=None if m.key is None else m.key.decode(errors="replace"), payload=payload, headers=m.headers,
                 topic=m.topic, partition=m.partition, offset=m.offset, attempt=attempt,
                 late="x-outbox-late" in m.headers, replay="x-outbox-replay" in m.headers)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_no_number)
