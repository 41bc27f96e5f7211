"""Reads topics of Kafka with confluent-kafka and hands their messages to an inbox."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ._inbox import Inbox
from ._ledger import Place, Since
from ._message import Message, SetBack, Unavailable, read
from ._pace import Lanes
from ._retries import retry

_log = logging.getLogger("cdc_relay_inbox")
_WINDOW = 500  # messages in flight; of a partition, so many are suspects after a crash
_CHECK_EVERY = 1.0
T = TypeVar("T")


@dataclass
class _Part(Place):
    epoch: int
    careful_below: int


class _Stopping(Exception):
    pass


class Runner:
    """
    Reads topics until stop. run blocks: call it in a thread, or from a signal's handler call stop.

    Each partition begins at the lower of the database's offset and the group's.
    """

    def __init__(self, inbox: Inbox, topics: Sequence[str], config: Mapping[str, Any], *, workers: int | None = None,
                 start: Literal["earliest", "latest"] = "earliest") -> None:
        if not inbox.types:
            raise ValueError("inbox: there is no handler: call on first")
        if not topics:
            raise ValueError("inbox: name the topics to read")
        self._inbox, self._topics, self._start = inbox, list(topics), start
        self._consumer = Consumer({"group.id": inbox.name, **config, "enable.auto.commit": False,
                                   "enable.auto.offset.store": False, "auto.offset.reset": start})
        most = inbox.pool.max_size - 2
        self._workers = max(1, min(workers or most, most))
        self._holder = str(uuid.uuid4())
        self._parts: dict[tuple[str, int], _Part] = {}
        self._early: list[Any] = []  # messages that came while handlers ran
        self._stop = threading.Event()
        self.trouble: str | None = "not in the group yet"
        """Why no events are handled. None: all is well."""

    def stop(self) -> None:
        """Stop reading. run returns when the handlers that run have ended."""
        self._stop.set()

    def run(self) -> None:
        retries = threading.Thread(target=retry, args=(self._inbox, self._stop), name="inbox retries")
        retries.start()
        checked = time.monotonic()
        self._consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        try:
            with ThreadPoolExecutor(self._workers, "inbox") as pool:
                while not self._stop.is_set():
                    messages, self._early = self._early, []
                    self._window(pool, messages or self._consumer.consume(_WINDOW, 0.1))
                    if time.monotonic() - checked > _CHECK_EVERY:
                        checked = time.monotonic()
                        self._check()
        except _Stopping:
            pass
        finally:
            self._stop.set()
            retries.join()
            self._consumer.close()
            self._inbox.ledger.release(self._holder)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign(self._positions(partitions))
        self.trouble = None

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for p in partitions:
            self._parts.pop((p.topic, p.partition), None)

    def _positions(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Begin an epoch: read the offsets, and return where to begin."""
        def positions() -> list[TopicPartition]:
            self._inbox.ledger.begin()
            self._parts.clear()
            self._early.clear()
            return [self._position(p) for p in self._consumer.committed(partitions, timeout=10)]

        return self._until_available(positions)

    def _position(self, p: TopicPartition) -> TopicPartition:
        low, high = self._consumer.get_watermark_offsets(TopicPartition(p.topic, p.partition), timeout=10)
        first = p.offset if p.offset >= 0 else high if self._start == "latest" else low
        wrote, unclean = self._inbox.ledger.start(self._holder, p.topic, p.partition, first)
        next_ = min(wrote, first)
        if next_ < low:
            _log.error("%d records of %s/%d, %d to %d, were deleted by the topic before they were read", low - next_,
                       p.topic, p.partition, next_, low - 1)
            next_ = low
        self._parts[p.topic, p.partition] = _Part(p.topic, p.partition, next_, wrote, self._inbox.ledger.epoch,
                                                  next_ + _WINDOW if unclean else 0)
        return TopicPartition(p.topic, p.partition, next_)

    def _window(self, pool: ThreadPoolExecutor, messages: list[Any]) -> None:
        """Decide messages, each key's in order, and note how far their partitions are."""
        of: dict[tuple[str, int], list[Message]] = {}
        all_: list[Message] = []
        for m in messages:
            if m.error():
                if m.error().code() != KafkaError._PARTITION_EOF:
                    if self.trouble != str(m.error()):
                        _log.error("Kafka: %s", m.error())
                    self.trouble = str(m.error())
                continue
            message = _message(m)
            if (message.topic, message.partition) in self._parts:
                all_.append(message)
                of.setdefault((message.topic, message.partition), []).append(message)
        if not all_:
            return
        parts = {place: self._parts[place] for place in of}
        try:
            while True:
                lanes = {place: Lanes(some) for place, some in of.items()}
                futures = [pool.submit(self._lanes, lanes[place], parts[place], of[place][0].offset)
                           for place in of for _ in range(min(self._workers, len(lanes[place])))]
                self._serve(futures)
                for future in futures:
                    future.result()
                if self._note(parts, all_):
                    break
        except SetBack:
            if any(p.epoch == self._inbox.ledger.epoch for p in parts.values()):  # else a rebalance has begun again
                self._begin_again()
        except _Stopping:
            pass

    def _lanes(self, lanes: Lanes, part: _Part, first: int) -> None:
        """Decide what waits of a partition, beside other threads; first is where that begins."""
        while not self._stop.is_set():
            careful = first < part.careful_below
            portion, rest = lanes.take(1 if careful else self._inbox.pace.next())
            if not portion:
                return
            since = Since(part.epoch, part.wrote)
            for m, outcome in zip(portion, self._inbox.together(portion, since), strict=True):
                if outcome is None:
                    self._until_available(lambda m=m: self._inbox.handle(m, m.offset < part.careful_below, since))
                if self._stop.is_set():
                    raise _Stopping
            lanes.give_back(rest)
        raise _Stopping

    def _serve(self, futures: list[Future[None]]) -> None:
        """Stay in the group while handlers run."""
        while not all(f.done() for f in futures):
            deadline = time.monotonic() + 0.5
            for f in futures:
                if not f.done():
                    try:
                        f.exception(max(0, deadline - time.monotonic()))
                    except TimeoutError:
                        break
            if all(f.done() for f in futures):
                return
            paused = self._consumer.assignment()
            self._consumer.pause(paused)
            if (early := self._consumer.poll(0)) is not None:  # of partitions that were assigned just now
                self._early.append(early)
            # Those that were revoked just now, too: librdkafka keeps them paused when they are assigned again.
            self._consumer.resume(paused)

    def _note(self, parts: dict[tuple[str, int], _Part], messages: list[Message]) -> bool:
        """False: the database lacks what was decided."""
        kept = [p for key, p in parts.items() if self._parts.get(key) is p]
        for p in kept:
            p.next = max(m.offset for m in messages if (m.topic, m.partition) == (p.topic, p.partition)) + 1
        if not kept:
            return True
        if self._until_available(lambda: self._inbox.ledger.note(kept, [read(m) for m in messages])):
            return False
        for p in kept:
            p.wrote = max(p.wrote, p.next)
            if self._inbox.metrics:
                _, high = self._consumer.get_watermark_offsets(TopicPartition(p.topic, p.partition), cached=True)
                self._inbox.metrics.lag(p.topic, p.partition, max(0, high - p.next))
        self._consumer.commit(offsets=[TopicPartition(p.topic, p.partition, p.next) for p in kept], asynchronous=True)
        return True

    def _check(self) -> None:
        """Notice a restored database also while no messages come."""
        places = [Place(p.topic, p.partition, p.wrote, p.wrote) for p in self._parts.values()]
        try:
            if places:
                self._inbox.ledger.note(places)
        except SetBack:
            self._begin_again()
        except Unavailable as error:
            self.trouble = str(error)

    def _begin_again(self) -> None:
        _log.error("the database has less than this process committed: it was restored. Reading again from its offsets")
        # Not seek, which raises while the fetching of a partition begins or ends.
        self._consumer.assign(self._positions([TopicPartition(*key) for key in self._parts]))

    def _until_available(self, work: Callable[[], T]) -> T:
        """Run work again while the database or the broker does not answer, until stop."""
        pause = 0.05
        while True:
            try:
                result = work()
            except SetBack:
                raise
            except (Unavailable, KafkaException) as error:
                if self._stop.is_set():
                    raise _Stopping from error
                _log.error("%s", error)
                self.trouble = str(error)
                self._stop.wait(pause)
                pause = min(pause * 2, 2)
                continue
            self.trouble = None
            return result


def _message(m: Any) -> Message:
    headers = {name: (value or b"").decode(errors="replace") for name, value in m.headers() or []}
    return Message(m.topic(), m.partition(), m.offset(), m.key(), m.value(), headers)
