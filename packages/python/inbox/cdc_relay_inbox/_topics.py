"""Reads topics of brokers other than Kafka, each by one process at a time, and hands their messages to an inbox."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from ._inbox import Inbox
from ._lease import Lease
from ._ledger import Place, Since
from ._message import Message, SetBack, Unavailable, read
from ._pace import Lanes
from ._retries import retry

_log = logging.getLogger("cdc_relay_inbox")
WINDOW = 500
"""Messages of a topic that are in flight, and that a crash makes suspects. Topics return at most so many at once."""
_HOLD_EVERY = 1.0
_LOOK_EVERY = 5.0
_BEAT_EVERY = 0.5
T = TypeVar("T")


@dataclass
class Bounds:
    """How a topic stands, by its broker, for one who has read what is below an offset."""

    id: str
    """Tells the topic from another one of its name. Empty if the broker does not."""
    first: int
    """The lowest offset that can be read."""
    end: int | None = None
    """Below what was read: it is another topic. None: the broker does not tell."""
    unread: int | None = None
    lost: str = ""
    """What is said of messages that are gone before they were read."""


class Topic(Protocol):
    """An open topic. One thread calls it. After an error it is closed."""

    def bounds(self, next: int) -> Bounds: ...
    def seek(self, next: int) -> None:
        """Begin to read. It raises Held while another process has messages of a queue."""

    def next(self) -> list[Message]:
        """Wait half a second at most for messages in order, with offsets that grow."""

    def beat(self) -> None:
        """Stay connected while handlers run."""

    def settle(self) -> None:
        """Take messages that are decided out of a queue."""

    def close(self, orderly: bool, /) -> None:
        """Give back what is not settled. Unless orderly, another process may have the topic by now."""


class Held(Exception):
    """Another process reads the topic."""


@dataclass
class _Place(Place):
    epoch: int
    careful_below: int
    over: BaseException | None = None
    """Why the topic is read no more."""
    lost: str = ""
    held: float = 0
    looked: float = 0


class TopicsRunner:
    """
    Reads topics until stop. run blocks: call it in a thread, or from a signal's handler call stop.

    With queue, what is settled is gone, and offsets are numbers of this process. Else offsets are the broker's.
    """

    def __init__(self, inbox: Inbox, topics: Sequence[str], open: Callable[[str], Topic], *, queue: bool,
                 workers: int | None) -> None:
        if not inbox.types:
            raise ValueError("inbox: there is no handler: call on before run")
        if not topics or not all(topics) or isinstance(topics, str):
            raise ValueError("inbox: name what to read, in a list")
        self._inbox, self._topics, self._open, self._queue = inbox, list(topics), open, queue
        most = inbox.pool.max_size - 2
        self._workers = max(1, min(workers or most, most))
        self._lease = Lease(inbox, str(uuid.uuid4()))
        self._begin = threading.Lock()
        self._stop = threading.Event()
        self._troubles: dict[str, str] = {}

    @property
    def trouble(self) -> str | None:
        """Why no events are handled. None: all is well, or another process reads."""
        return next(iter(self._troubles.values()), None)

    def stop(self) -> None:
        """Stop reading. run returns when the handlers that run have ended."""
        self._stop.set()

    def run(self) -> None:
        with ThreadPoolExecutor(self._workers, "inbox") as pool:
            threads = [threading.Thread(target=retry, args=(self._inbox, self._stop), name="inbox retries")]
            threads += [threading.Thread(target=self._serve, args=(name, pool), name=f"inbox {name}")
                        for name in self._topics]
            for thread in threads:
                thread.start()
            try:
                self._stop.wait()
            finally:
                self._stop.set()
                for thread in threads:
                    thread.join()
        self._inbox.ledger.release(self._lease.holder)

    def _serve(self, name: str, pool: ThreadPoolExecutor) -> None:
        """Read a topic whenever no other process does."""
        pause, standing_by = 0.05, False
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._once(name, pool)
            except Held as error:
                if not standing_by:
                    _log.info("standing by: %s", error)
                standing_by, pause = True, _HOLD_EVERY
                self._troubles.pop(name, None)
            except Exception as error:
                if time.monotonic() - began > 5:
                    pause = 0.05
                standing_by = False
                self._trouble(name, error)
            self._stop.wait(pause)
            pause = min(2 * pause, 2)

    def _once(self, name: str, pool: ThreadPoolExecutor) -> None:
        """Take a topic and read it, until that is over."""
        with self._begin:
            if self._inbox.ledger.epoch == 0:
                self._inbox.ledger.begin()
        if self._lease.held(name):
            raise Held(f"another process reads {name}")
        topic, epoch, orderly = self._open(name), self._inbox.ledger.epoch, False
        try:
            place = self._take(name, topic, epoch)
            self._tick(place, topic)
            topic.seek(place.next)
            self._troubles.pop(name, None)
            while not self._stop.is_set():
                if messages := topic.next():
                    self._window(place, topic, pool, messages)
                self._tick(place, topic)
                if place.over:
                    raise place.over
            orderly = place.over is None
        except SetBack:
            _log.error("the database has less than this process committed: it was restored. Reading again from its offsets")
            with self._begin:
                if epoch == self._inbox.ledger.epoch:  # else another topic's thread has begun one
                    self._inbox.ledger.begin()
            raise
        finally:
            with suppress(Exception):
                topic.close(orderly)

    def _take(self, name: str, topic: Topic, epoch: int) -> _Place:
        bounds = topic.bounds(0)
        start = self._lease.take(name, bounds.id, bounds.first)
        if start is None:
            raise Held(f"another process reads {name}")
        if start.replaced is not None:
            _log.error("%s is not the one that was read up to %d: it was deleted and created again. Reading it from its "
                       "start", name, start.replaced)
        next_ = max(start.next, bounds.first) if self._queue else start.next
        return _Place(name, 0, next_, start.next, epoch, next_ + WINDOW if start.unclean else 0)

    def _tick(self, place: _Place, topic: Topic) -> None:
        """Tell others that this process reads the topic, and ask how it stands."""
        now = time.monotonic()
        if place.over:
            return
        try:
            if now - place.held > _HOLD_EVERY:
                place.held = now
                self._hold(place)
            if now - place.looked > _LOOK_EVERY:
                place.looked = now
                self._look(place, topic)
        except Exception as error:
            place.over = error

    def _hold(self, place: _Place) -> None:
        with suppress(Unavailable):  # then no other process can take it, either
            mine = self._lease.hold(place.topic)
            if not self._queue:  # it notices a restored database also while no messages come
                self._note(place, place.wrote)
            if not mine:
                raise Held(f"another process has taken {place.topic} over: this one did not answer in time")

    def _look(self, place: _Place, topic: Topic) -> None:
        bounds = topic.bounds(place.next)
        if bounds.end is not None and bounds.end < place.next:
            self._lease.rewind(place.topic, bounds.first)
            raise RuntimeError(f"{place.topic} ends at {bounds.end}, and was read up to {place.next}: it was deleted and "
                               "created again, or set back. Reading it from its start")
        if bounds.lost and bounds.lost != place.lost:
            _log.error("%s", bounds.lost)
        place.lost = bounds.lost
        if self._inbox.metrics and bounds.unread is not None:
            self._inbox.metrics.lag(place.topic, 0, bounds.unread)

    def _window(self, place: _Place, topic: Topic, pool: ThreadPoolExecutor, messages: list[Message]) -> None:
        """Decide messages, each key's in order, and write how far that is."""
        next_ = messages[-1].offset + 1
        while True:
            lanes = Lanes(messages)
            futures: list[Future[None]] = [pool.submit(self._lanes, place, lanes, messages[0].offset)
                                           for _ in range(min(self._workers, len(lanes)))]
            while wait(futures, _BEAT_EVERY).not_done:
                self._tick(place, topic)
                try:
                    topic.beat()
                except Exception as error:
                    place.over = place.over or error
            for future in futures:
                future.result()
            if self._over(place):
                return
            if not self._until_available(place, lambda: self._note(place, next_, messages)):
                break
        if self._over(place):
            return
        place.next = next_
        if self._queue:
            topic.settle()

    def _lanes(self, place: _Place, lanes: Lanes, first: int) -> None:
        """Decide what waits, beside other threads. first is where that begins."""
        since = None if self._queue else Since(place.epoch, place.wrote)
        while not self._over(place):
            portion, rest = lanes.take(1 if first < place.careful_below else self._inbox.pace.next())
            if not portion:
                return
            together = self._until_available(place, partial(self._inbox.together, portion, since))
            for m, outcome in zip(portion, together or [], strict=False):
                if outcome is None:
                    self._until_available(place, partial(self._inbox.handle, m, m.offset < place.careful_below, since))
            lanes.give_back(rest)

    def _over(self, place: _Place) -> bool:
        return place.over is not None or self._stop.is_set()

    def _note(self, place: _Place, next: int, messages: Sequence[Message] = ()) -> int:
        """Write how far a log is, and return how many of the messages, which were decided, the database lacks."""
        places = [] if self._queue else [Place(place.topic, 0, next, place.wrote)]
        lacks = self._inbox.ledger.note(places, [read(m) for m in messages])
        if not lacks:
            place.wrote = max(place.wrote, next)
        return lacks

    def _until_available(self, place: _Place, work: Callable[[], T]) -> T | None:
        """Run work again while the database does not answer, until the place is over: None."""
        pause = 0.05
        while not self._over(place):
            try:
                result = work()
                self._troubles.pop(place.topic, None)
                return result
            except Unavailable as error:
                self._trouble(place.topic, error)
                self._stop.wait(pause)
                pause = min(pause * 2, 2)
            except BaseException as error:
                place.over = error
        return None

    def _trouble(self, name: str, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if self._troubles.get(name) != text:
            _log.error("%s: %s", name, text)
        self._troubles[name] = text
