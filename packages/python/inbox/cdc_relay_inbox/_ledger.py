"""The inbox's tables, by the functions that `cdc-relay init --inbox` creates. It never runs a handler."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool, PoolTimeout

from ._message import Message, Read, SetBack, Unavailable, is_uuid, read


@dataclass
class Since:
    """What the caller has read of a partition in an epoch: the database has no less, or it was restored."""

    epoch: int
    wrote: int


@dataclass
class Place:
    """How far a partition is."""

    topic: str
    partition: int
    next: int
    wrote: int


@contextmanager
def answering(what: str) -> Iterator[None]:
    """Turn errors of Postgres into those of the inbox."""
    try:
        yield
    except (psycopg.Error, PoolTimeout) as error:
        if getattr(error, "sqlstate", None) == "IB001":
            raise SetBack(str(error)) from error
        raise Unavailable(f"{what}: {error}") from error


def rows(conn: Connection[Any], sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(sql, parameters)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


class Ledger:
    def __init__(self, pool: ConnectionPool[Any], name: str, schema: str) -> None:
        self.pool = pool
        self.name = name
        self._s = '"' + schema.replace('"', '""').replace("%", "%%") + '".'
        self._unicode: bool | None = None
        self._known: tuple[int, Any, str] | None = None
        self._last: tuple[str, str, bool] | None = None
        self.epoch = 0
        """Grows whenever offsets are read again."""

    @contextmanager
    def connect(self) -> Iterator[Connection[Any]]:
        """Lend a connection whose transactions are those of the inbox, whatever the database's defaults."""
        with answering("connect"):
            conn = self.pool.getconn()
        try:
            if conn.isolation_level is None:
                conn.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                conn.read_only = False
            yield conn
        finally:
            self.pool.putconn(conn)

    def _ask(self, what: str, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        with self.connect() as conn, answering(what), conn.transaction():
            return rows(conn, sql.replace("{s}", self._s), parameters)

    def _on(self, conn: Connection[Any], what: str, sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        with answering(what):
            return rows(conn, sql.replace("{s}", self._s), parameters)

    def claim(self, conn: Connection[Any], r: Read, since: Since | None) -> tuple[str, int]:
        """Claim an event in the connection's transaction. SetBack: it is not the database that was read before."""
        same, parameters = self._same(r, since)
        m = r.message
        [(_, state, pid)] = self._on(
            conn, "claim an event", f"SELECT {same}, {{s}}inbox_claim(%s, %s, %s, %s, %s, %s), pg_backend_pid()",
            (*parameters, self.name, r.id, m.topic, m.partition, m.key, r.source))
        return state, pid

    def claim_together(self, conn: Connection[Any], reads: list[Read], since: Since | None) -> tuple[list[int], int]:
        """
        Claim events in the connection's transaction, in their order.

        Return the indexes of those that the caller has the effects of: the others are decided or behind. With since all
        are of one partition; SetBack as claim.
        """
        same, parameters = self._same(reads[0], since)
        ms = [r.message for r in reads]
        [(_, places, pid)] = self._on(
            conn, "claim events", f"SELECT {same}, {{s}}inbox_claim_together(%s, %s::text[], %s::text[], %s::integer[], "
            "%s::bytea[], %s::text[]), pg_backend_pid()",
            (*parameters, self.name, _array([r.id for r in reads]), _array([m.topic for m in ms]),
             _array([m.partition for m in ms]), _array([m.key for m in ms]), _array([r.source for r in reads])))
        return [place - 1 for place in places], pid

    def _same(self, r: Read, since: Since | None) -> tuple[str, tuple[Any, ...]]:
        """Return an expression that raises SetBack if it is not the database that was read before."""
        known, last = self._known, self._last
        if since is None or known is None:
            return "NULL", ()
        if since.epoch != self.epoch:  # it grows before known changes
            raise SetBack("the offsets were read again")
        if last is None:
            ids, of_last = "'{}', '{}', '{}'", ()
        elif is_uuid(last[0]):
            ids, of_last = "'{0}', ARRAY[%s], ARRAY[%s]", (last[0].lower(), last[2])
        else:
            ids = """ARRAY[coalesce((SELECT s.source FROM {s}inbox_source s WHERE s.name = %s), -1)]::smallint[],
                ARRAY[%s], ARRAY[%s]"""
            of_last = (last[1], last[0], last[2])
        return f"""{{s}}inbox_same(%s::smallint, %s, %s, %s, {ids}, ARRAY[%s], ARRAY[%s::integer], ARRAY[%s::bigint])""", (
            known[0], self.name, known[1], known[2], *of_last, r.message.topic, r.message.partition, since.wrote)

    def _look(self, conn: Connection[Any], r: Read, since: Since | None) -> None:
        same, parameters = self._same(r, since)
        self._on(conn, "look at the database", "SELECT " + same, parameters)

    def committed(self, r: Read, any_state: bool) -> None:
        """Note what this process has committed. any_state: others may change the event's state."""
        self._last = (r.id, r.source, any_state)

    def begin(self) -> None:
        """Begin an epoch: from here on the database is the one that is there now."""
        self.epoch += 1
        [known] = self._ask("read the identity of the database",
                            "SELECT {s}inbox_register(%s), pg_postmaster_start_time(), {s}inbox_file()", (self.name,))
        self._known = known  # type: ignore[assignment]
        self._last = None

    def take(self, conn: Connection[Any]) -> tuple[Read, int, int] | None:
        """Take a parked event that is due: with the attempts that it had, and the session."""
        found = self._on(conn, "take a parked event", """SELECT id, source_name, topic, partition, "offset", key, value,
            headers::text, type, attempts, pg_backend_pid() FROM {s}inbox_take(%s)""", (self.name,))
        if not found:
            return None
        id_, source, topic, partition, offset, key, value, headers, type_, attempts, pid = found[0]
        original: Callable[[str], str] = str if self._all_unicode(conn) else _unescape
        message = Message(topic, partition, offset, key, value,
                          {original(k): original(v) for k, v in json.loads(headers).items()})
        r = read(message)
        r.id, r.source, r.type = id_, source, original(type_)
        return r, attempts, pid

    def park(self, conn: Connection[Any], r: Read, attempts: int, error: str, delay: float | None) -> bool:
        """Park an event. A delay of None: it waits for another one of its key."""
        m = r.message
        fit = self._fit(conn)
        headers = json.dumps({fit(k): fit(v) for k, v in m.headers.items()}, ensure_ascii=False)
        [(parked,)] = self._on(conn, "park an event", """SELECT {s}inbox_park(%s, %s, topic => %s, partition => %s,
            "offset" => %s, key => %s, value => %s, headers => %s::text::jsonb, type => %s, error => %s, attempts => %s,
            next_at => now() + %s::float8 * interval '1 second', source_name => %s)""",
                               (self.name, r.id, m.topic, m.partition, m.offset, m.key, m.value, headers, fit(r.type),
                                fit(error), attempts, delay, r.source))
        return parked

    def park_failed(self, r: Read, attempts: int, error: str, delay: float, since: Since | None) -> bool:
        """Park an event whose effect was rolled back. False: someone else has decided it."""
        with self.connect() as conn, answering("park an event"), conn.transaction():
            self._look(conn, r, since)
            return self.park(conn, r, attempts, error, delay)

    def failed(self, conn: Connection[Any], r: Read, error: str, delay: float | None) -> bool:
        """Note a failed attempt of a parked event. A delay of None makes it a dead letter."""
        [(noted,)] = self._on(conn, "note a failed attempt", """SELECT {s}inbox_failed(%s, %s, %s,
            now() + %s::float8 * interval '1 second', %s)""", (self.name, r.id, self._fit(conn)(error), delay, r.source))
        return noted

    def retry_later(self, r: Read, error: str, delay: float) -> bool:
        with self.connect() as conn, answering("note a failed attempt"), conn.transaction():
            return self.failed(conn, r, error, delay)

    def wait(self, r: Read, error: str, delay: float) -> None:
        """Let a parked event wait without counting an attempt."""
        with self.connect() as conn, answering("let an event wait"), conn.transaction():
            self._on(conn, "let an event wait", """UPDATE {s}inbox_parked p
                SET next_at = now() + %s::float8 * interval '1 second', error = %s FROM {s}inbox_identity(%s, %s) i
                WHERE p.consumer = {s}inbox_register(%s) AND p.source = i.source AND p.event_id = i.event_id""",
                     (delay, self._fit(conn)(error), r.id, r.source, self.name))

    def bury(self, r: Read, parked: bool, error: str, kind: str, since: Since | None = None) -> bool:
        """Make an event a dead letter, parked or not. False: someone else has decided it."""
        with self.connect() as conn, answering("store a dead letter"), conn.transaction():
            self._look(conn, r, since)
            if not (parked or self.park(conn, r, 0, error, 0)) or not self.failed(conn, r, error, None):
                return False
            self._on(conn, "store a dead letter", """UPDATE {s}inbox_dead d SET class = %s FROM {s}inbox_identity(%s, %s) i
                WHERE d.consumer = {s}inbox_register(%s) AND d.source = i.source AND d.event_id = i.event_id""",
                     (kind, r.id, r.source, self.name))
            self._acquit(conn, r)
            return True

    def done(self, conn: Connection[Any], r: Read) -> bool:
        [(done,)] = rows(conn, f"SELECT {self._s}inbox_done(%s, %s, %s)", (self.name, r.id, r.source))
        return done

    def suspicion(self, r: Read) -> tuple[int, int]:
        """Return how often earlier processes noted that they began an event: among others, and alone."""
        found = self._ask("read suspects", """SELECT s.seen, s.alone FROM {s}inbox_suspect s
            JOIN {s}inbox_identity(%s, %s) i ON s.source = i.source AND s.event_id = i.event_id
            WHERE s.consumer = {s}inbox_register(%s)""", (r.id, r.source, self.name))
        return found[0] if found else (0, 0)  # type: ignore[return-value]

    def suspect(self, r: Read, alone: bool) -> None:
        """Note, in a transaction of its own, that this process begins an event."""
        self._ask("note a suspect", """INSERT INTO {s}inbox_suspect AS s (consumer, source, event_id, seen, alone)
            SELECT {s}inbox_register(%s), i.source, i.event_id, %s, %s FROM {s}inbox_identity(%s, %s) i
            ON CONFLICT (consumer, source, event_id) DO UPDATE SET seen = s.seen + excluded.seen,
            alone = s.alone + excluded.alone""", (self.name, int(not alone), int(alone), r.id, r.source))

    def acquit(self, r: Read) -> None:
        """Forget that an event was begun: it is decided, and the process lives."""
        with self.connect() as conn, answering("forget a suspect"), conn.transaction():
            self._acquit(conn, r)

    def _acquit(self, conn: Connection[Any], r: Read) -> None:
        self._on(conn, "forget a suspect", """DELETE FROM {s}inbox_suspect s USING {s}inbox_identity(%s, %s) i
            WHERE s.consumer = {s}inbox_register(%s) AND s.source = i.source AND s.event_id = i.event_id""",
                 (r.id, r.source, self.name))

    def terminate(self, pid: int) -> None:
        """End a session whose handler exceeded its time, so that none of its statements can commit."""
        self._ask("end a session", "SELECT pg_terminate_backend(%s)", (pid,))

    def start(self, holder: str, topic: str, partition: int, first: int) -> tuple[int, bool]:
        """
        Enter this process, and return how far a partition is and whether the process that had it last did not release it.
        """
        [(next_, unclean)] = self._ask("read an offset", """WITH me AS (SELECT {s}inbox_register(%(name)s) AS c),
            before AS (SELECT o.* FROM {s}inbox_offset o, me
                WHERE o.consumer = me.c AND o.topic = %(topic)s AND o.partition = %(partition)s)
            INSERT INTO {s}inbox_offset AS o (consumer, topic, partition, topic_id, next_offset, holder)
            SELECT c, %(topic)s, %(partition)s, '', %(first)s, %(holder)s FROM me
            ON CONFLICT (consumer, topic, partition) DO UPDATE SET holder = excluded.holder, at = now()
            RETURNING next_offset, (SELECT holder <> %(holder)s FROM before)""",
                                       {"name": self.name, "topic": topic, "partition": partition, "first": first,
                                        "holder": holder})
        return next_, bool(unclean)

    def note(self, places: Sequence[Place], events: Sequence[Read] = ()) -> int:
        """
        Write how far partitions are, unless the database lacks events, which this process had decided: it was restored.

        Return how many it lacks. SetBack: a partition has less than this process wrote.
        """
        # In one statement, as a restore can come between two. One look by the primary key for each event: a plan for
        # all of them can read the whole table.
        [(lacks, behind)] = self._ask("note offsets", """WITH me AS (SELECT {s}inbox_register(%s) AS c), mine AS (
                SELECT * FROM unnest(%s::text[], %s::integer[], %s::bigint[], %s::bigint[])
                    AS u (topic, partition, next, wrote)),
            lost AS MATERIALIZED (SELECT count(*) AS n FROM me, unnest(%s::text[], %s::text[]) AS u (id, source)
                WHERE (SELECT true FROM {s}inbox_event e WHERE e.consumer = me.c
                    AND e.source = CASE WHEN u.source IS NULL THEN 0
                        ELSE (SELECT n.source FROM {s}inbox_source n WHERE n.name = u.source) END
                    AND e.event_id = u.id LIMIT 1) IS NOT TRUE),
            moved AS (UPDATE {s}inbox_offset o SET next_offset = greatest(o.next_offset, u.next), at = now()
                FROM mine u, me, lost WHERE o.consumer = me.c AND o.topic = u.topic AND o.partition = u.partition
                AND o.next_offset >= u.wrote AND u.next > o.next_offset AND lost.n = 0)
            SELECT lost.n, EXISTS (SELECT FROM me CROSS JOIN mine u LEFT JOIN {s}inbox_offset o
                ON o.consumer = me.c AND o.topic = u.topic AND o.partition = u.partition
                WHERE coalesce(o.next_offset, 0) < u.wrote) FROM lost""",
                                      (self.name, [p.topic for p in places], [p.partition for p in places],
                                       [p.next for p in places], [p.wrote for p in places],
                                       _array([r.id.lower() if r.uuid else r.id for r in events]),
                                       _array([None if r.uuid else r.source for r in events])))
        if behind:
            raise SetBack("the database has a lower offset than this process wrote")
        return lacks

    def release(self, holder: str) -> None:
        self._ask("release partitions", """UPDATE {s}inbox_offset SET holder = NULL
            WHERE consumer = {s}inbox_register(%s) AND holder = %s""", (self.name, holder))

    def forget(self, keep: float) -> None:
        self._ask("forget ids", """SELECT {s}inbox_forget(%s, %s::float8 * interval '1 second', pause => '30 s')
            FROM {s}inbox_register(%s)""", (self.name, keep, self.name))

    def counts(self) -> tuple[int, int, int]:
        """Count parked events, their keys, and open dead letters."""
        [found] = self._ask("count", """SELECT (SELECT count(*) FROM {s}inbox_parked WHERE consumer = c),
            (SELECT count(DISTINCT (topic, partition, lane)) FROM {s}inbox_parked WHERE consumer = c),
            (SELECT count(*) FROM {s}inbox_dead WHERE consumer = c AND replayed_at IS NULL AND discarded_at IS NULL)
            FROM {s}inbox_register(%s) c""", (self.name,))
        return found  # type: ignore[return-value]

    def _all_unicode(self, conn: Connection[Any]) -> bool:
        """Report whether the database holds every character. Else those beyond ASCII are stored with escapes."""
        if self._unicode is None:
            [(encoding,)] = self._on(conn, "read the encoding", "SELECT current_setting('server_encoding')")
            self._unicode = encoding == "UTF8"
        return self._unicode

    def _fit(self, conn: Connection[Any]) -> Callable[[str], str]:
        def whole(text: str) -> str:
            return text.replace("\0", "").encode(errors="replace").decode()

        return whole if self._all_unicode(conn) else lambda text: _escape(whole(text))


def _array(items: Sequence[str | bytes | int | None]) -> str:
    """Return what Postgres reads as an array. The array of psycopg takes many times as long."""
    return "{" + ",".join([_item(i) for i in items]) + "}"


def _item(item: str | bytes | int | None) -> str:
    if item is None:
        return "NULL"
    if isinstance(item, bytes):
        return '"\\\\x' + item.hex() + '"'
    return '"' + str(item).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escape(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _unescape(text: str) -> str:
    return re.sub(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))",
                  lambda m: chr(int(m[1] or m[2] or m[3], 16)), text)
