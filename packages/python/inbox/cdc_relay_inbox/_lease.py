"""Which process reads a topic that one process reads at a time."""

from __future__ import annotations

from dataclasses import dataclass

from ._inbox import Inbox

_LEASE = 5  # seconds that a process that has died or is frozen keeps others from a topic


@dataclass
class Start:
    """Where a topic begins."""

    next: int
    unclean: bool
    """The process that had it last did not release it."""
    replaced: int | None
    """How far another topic of the name was."""


class Lease:
    """
    The inbox's table of offsets, by its holder.

    If two processes read a topic all the same, the events' rows are the fence: each effect still happens once.
    """

    def __init__(self, inbox: Inbox, holder: str) -> None:
        self._ledger, self.holder = inbox.ledger, holder

    def held(self, topic: str) -> bool:
        """Report whether another process has the topic, and has said so within the lease."""
        return bool(self._ledger._ask("look who reads a topic", """SELECT true FROM {s}inbox_offset
            WHERE consumer = {s}inbox_register(%s) AND topic = %s AND partition = 0 AND holder <> %s
            AND at > now() - %s * interval '1 second'""", (self._ledger.name, topic, self.holder, _LEASE)))

    def take(self, topic: str, topic_id: str, first: int) -> Start | None:
        """Take the topic. None: another process has it. One that the database does not know begins at first."""
        found = self._ledger._ask("take a topic", """WITH me AS (SELECT {s}inbox_register(%(name)s) AS c),
            before AS (SELECT o.* FROM {s}inbox_offset o JOIN me ON o.consumer = me.c
                WHERE o.topic = %(topic)s AND o.partition = 0)
            INSERT INTO {s}inbox_offset AS o (consumer, topic, partition, topic_id, next_offset, holder)
            SELECT c, %(topic)s, 0, %(id)s, %(first)s, %(holder)s FROM me
            ON CONFLICT (consumer, topic, partition) DO UPDATE SET holder = excluded.holder, at = now(),
            next_offset = CASE WHEN o.topic_id = excluded.topic_id THEN o.next_offset ELSE excluded.next_offset END,
            topic_id = excluded.topic_id
            WHERE o.holder IS NULL OR o.holder = excluded.holder OR o.at < now() - %(lease)s * interval '1 second'
            RETURNING next_offset, (SELECT holder <> %(holder)s FROM before),
                (SELECT b.next_offset FROM before b WHERE b.topic_id <> o.topic_id)""",
                                  {"name": self._ledger.name, "topic": topic, "id": topic_id, "first": first,
                                   "holder": self.holder, "lease": _LEASE})
        return Start(found[0][0], bool(found[0][1]), found[0][2]) if found else None

    def hold(self, topic: str) -> bool:
        """Say that this process still reads the topic, and report whether no other one has taken it."""
        return bool(self._ledger._ask("hold a topic", """UPDATE {s}inbox_offset SET at = now()
            WHERE consumer = {s}inbox_register(%s) AND topic = %s AND partition = 0 AND holder = %s RETURNING true""",
                                      (self._ledger.name, topic, self.holder)))

    def rewind(self, topic: str, next: int) -> None:
        """Set the offset of a topic back that ends below it."""
        self._ledger._ask("rewind a topic", "SELECT {s}inbox_rewind(%s, %s, 0, %s)", (self._ledger.name, topic, next))
