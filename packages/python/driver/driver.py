"""The contract's driver: commands as lines of JSON on standard input, one answer each on standard output.

The judge is test/packages in the product's Go tests; packages/contract/README.md lists the commands.
"""

import asyncio
import faulthandler
import json
import logging
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import psycopg
from confluent_kafka import Consumer
from psycopg_pool import ConnectionPool

import cdc_relay_emit
import cdc_relay_inbox
from cdc_relay_emit import Event
from cdc_relay_emit.sandbox import Sandbox
from cdc_relay_emit.testing import assert_emitted, no_event_emitted
from cdc_relay_inbox import Inbox, Message, Outage, Permanent, Retry, RetryAfter, aio
from cdc_relay_inbox.testing import MemoryInbox

URL = os.environ["DATABASE_URL"]
logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
faulthandler.register(signal.SIGUSR1)  # prints what each thread is doing
pool = inbox = runner = running = registry = None
LOOP = None
if os.environ.get("HANDLERS") == "asyncio":
    LOOP = asyncio.new_event_loop()
    threading.Thread(target=LOOP.run_forever, daemon=True).start()


def fail(error):
    def raising(event, conn):
        raise error
    return raising


def swallow(sql):
    def swallowing(event, conn):
        try:
            conn.execute(sql)
        except Exception:
            pass
    return swallowing


def run(sql):
    return lambda event, conn: conn.execute(sql)


SWALLOWED = {"swallowed": "SELECT 1 / 0", "rollback swallowed": "ROLLBACK"}

# Ways to fail, by the name that a payload has in its field fails.
FAILURES = {
    "error": fail(ValueError("no such customer")),
    "no error": fail(SystemExit("no such customer")),
    "permanent": fail(Permanent("never")),
    "outage": fail(Outage("the bank is away")),
    "later": fail(RetryAfter(0.03, "come back")),
    "like a lost connection": fail(psycopg.OperationalError("server closed the connection unexpectedly")),
    "cancelled": fail(asyncio.CancelledError()),
    "unique": run("INSERT INTO once VALUES (1), (1)"),
    "rollback": lambda event, conn: conn.rollback(),
    "commit": run("INSERT INTO scratch VALUES (1); COMMIT"),
    "slow": lambda event, conn: time.sleep(60),
    "slow statement": run("SELECT pg_sleep(60)"),
    "ends its session": run("SELECT pg_terminate_backend(pg_backend_pid())"),
    "setting": run("SET lock_timeout = '1ms'; SET search_path = nowhere, public"),
    "setting of the transaction": run("SET LOCAL search_path = nowhere, public"),
    "quoted": run("""DO $x$ BEGIN PERFORM 1; END $x$;
                     SELECT 'a''; COMMIT; b', E'\\'; COMMIT; c' AS "; ROLLBACK;", $$; COMMIT$$
                     -- ; COMMIT
                     /* ; COMMIT */"""),
    **{name: swallow(sql) for name, sql in SWALLOWED.items()},
    "death": lambda event, conn: os.kill(os.getpid(), signal.SIGKILL),
}


def insert(conn, *values):
    conn.execute("INSERT INTO effect (id, key, n, attempt, length) VALUES (%s, %s, %s, %s, %s)", values)


def effect(event, conn):
    payload = event.payload or {}
    insert(conn, event.id, event.key, payload.get("n"), event.attempt, len(json.dumps(event.payload)))
    if "fails" not in payload or event.attempt > payload.get("until", event.attempt) or event.replay:
        return
    if not conn.execute("SELECT FROM fixed").fetchall():
        FAILURES[payload["fails"]](event, conn)


async def effect_async(event, conn):
    """Do what effect does, with a connection of asyncio."""
    payload = event.payload or {}
    values = event.id, event.key, payload.get("n"), event.attempt, len(json.dumps(event.payload))
    await conn.execute("INSERT INTO effect (id, key, n, attempt, length) VALUES (%s, %s, %s, %s, %s)", values)
    if "fails" not in payload or event.attempt > payload.get("until", event.attempt) or event.replay:
        return
    if await (await conn.execute("SELECT FROM fixed")).fetchall():
        return
    if payload["fails"] == "slow":
        await asyncio.sleep(60)
    elif payload["fails"] in SWALLOWED:
        with suppress(Exception):
            await conn.execute(SWALLOWED[payload["fails"]])
    else:
        result = FAILURES[payload["fails"]](event, conn)
        if asyncio.iscoroutine(result):
            await result


def an_event(fields):
    payload = fields.get("payload")
    if isinstance(payload, dict) and isinstance(payload.get("bytes"), str):
        payload = payload["bytes"].encode()
    return Event(id=fields.get("id"), aggregate_type=fields["aggregateType"], aggregate_id=fields["aggregateId"],
                 type=fields["type"], payload=payload, headers=fields.get("headers"), lock=fields.get("lock", False))


@contextmanager
def with_psycopg():
    with psycopg.connect(URL) as conn:
        yield lambda event: cdc_relay_emit.emit(conn, event), conn.execute


@contextmanager
def with_sqlalchemy():
    from sqlalchemy import create_engine, text
    from sqlalchemy.orm import Session

    from cdc_relay_emit.sqlalchemy import emit
    engine = create_engine(URL.replace("postgres://", "postgresql+psycopg://"))
    try:
        with Session(engine) as session, session.begin():
            yield lambda event: emit(session, event), lambda sql: session.execute(text(sql))
    finally:
        engine.dispose()


@contextmanager
def with_django():
    from django.conf import settings
    from django.db import connection, transaction

    from cdc_relay_emit.django import emit
    if not settings.configured:
        at = psycopg.conninfo.conninfo_to_dict(URL)
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": at["dbname"],
                                                  "USER": at["user"], "HOST": at["host"], "PORT": at["port"]}})

    def execute(sql):
        with connection.cursor() as cursor:
            cursor.execute(sql)

    with transaction.atomic():
        yield emit, execute


@contextmanager
def with_asyncio():
    loop = asyncio.new_event_loop()
    conn = loop.run_until_complete(psycopg.AsyncConnection.connect(URL))
    try:
        yield (lambda event: loop.run_until_complete(cdc_relay_emit.emit_async(conn, event)),
               lambda sql: loop.run_until_complete(conn.execute(sql)))
        loop.run_until_complete(conn.commit())
    finally:
        loop.run_until_complete(conn.close())
        loop.close()


EMITTERS = {"psycopg": with_psycopg, "asyncio": with_asyncio, "sqlalchemy": with_sqlalchemy, "django": with_django}


def op_open(options=None, dieAt=0, metrics=False, **_):
    global pool, inbox, registry
    options = dict(options or {})
    if pool:
        pool.close()
    if dieAt:
        die_before(dieAt)
    pool = ConnectionPool(URL, min_size=1, max_size=6, open=True, reconnect_timeout=30)
    names = {"attempts": "attempts", "initialMs": "initial", "maxMs": "longest"}
    retry = {"attempts": 3, "initialMs": 20, "maxMs": 100, **options.pop("retry", {})}
    retry = {names[name]: value / (1000 if name.endswith("Ms") else 1) for name, value in retry.items()}
    if "maxBatch" in options:
        options["max_batch"] = options.pop("maxBatch")
    if "handlerTimeoutMs" in options:
        options["handler_timeout"] = options.pop("handlerTimeoutMs") / 1000
    counted = None
    if metrics:
        from prometheus_client import CollectorRegistry

        from cdc_relay_inbox.prometheus import PrometheusMetrics
        registry = CollectorRegistry()
        counted = PrometheusMetrics(registry)
    inbox = Inbox(pool, "billing", retry=Retry(**retry), metrics=counted, **options)
    if counted:
        counted.watch(inbox)
    inbox.on("Effect", aio.handler(effect_async, LOOP) if LOOP else effect)
    return {"emitters": list(EMITTERS)}


def op_metrics(**_):
    from prometheus_client import generate_latest
    return {"text": generate_latest(registry).decode()}


def op_emit(steps, fails=None, **more):
    ids = []
    try:
        with EMITTERS[more.get("with", "psycopg")]() as (emit, sql):
            for step in steps:
                if step.get("sql"):
                    sql(step["sql"])
                else:
                    ids.append(emit(an_event(step["event"])))
            if fails:
                raise RuntimeError(fails)
    except Exception as error:
        return {"error": str(error)}
    return {"count": len(ids), "distinct": len(set(ids))}


def op_handle(message, **_):
    return {"outcome": inbox.handle(received(message), message.get("careful", False))}


def op_handleAll(messages, **_):
    return {"outcomes": " ".join(inbox.handle_all([received(m) for m in messages]))}


def received(m):
    headers = {"event_type": "Effect", **({"id": m["id"]} if "id" in m else {}), **m.get("headers", {})}
    if "hex" in m:
        value = bytes.fromhex(m["hex"])
    elif m.get("size"):
        value = json.dumps({"n": m["size"], "fill": "x" * m["size"]}).encode()
    else:
        value = json.dumps(m["value"]).encode() if m.get("value") is not None else None
    key = None if m.get("key") is None else m["key"].encode()
    return Message(m["topic"], m["partition"], m["offset"], key, value,
                   {name: value for name, value in headers.items() if value is not None})


def op_kit(deliver, **_):
    """Hand messages to the inbox in memory, and look at what a transaction emitted."""
    kit = MemoryInbox(attempts=3)
    kit.on("Effect", lambda event, conn: fail_as_asked(event, conn))
    outcomes = [kit.deliver(m.get("type", "Effect"), m.get("value"), key=m.get("key"), id=m["id"]) for m in deliver]
    retried = [kit.retry(), kit.retry()]
    with psycopg.connect(URL) as conn:
        no_event_emitted(conn)
        refused(lambda: assert_emitted(conn, "OrderPlaced"))
        cdc_relay_emit.emit(conn, Event(aggregate_type="order", aggregate_id="42", type="OrderPlaced",
                                        payload={"cents": 9990}))
        assert_emitted(conn, "OrderPlaced", "42", {"cents": 9990})
        for wrong in (("Other",), ("OrderPlaced", "43"), ("OrderPlaced", "42", {"cents": 1})):
            refused(lambda wrong=wrong: assert_emitted(conn, *wrong))
        no_event_emitted(conn, "Other")
        refused(lambda: no_event_emitted(conn, "OrderPlaced"))
        conn.rollback()
    return {"outcomes": " ".join(outcomes), "retried": ", ".join(" ".join(some) for some in retried),
            "dead": " ".join(f"{d.event.id} {d.error}" for d in kit.dead), "parked": len(kit.parked)}


def op_sandbox(program, **_):
    """Emit in a sandbox, and look at what its relay publishes."""
    with Sandbox(program) as sandbox:
        with psycopg.connect(sandbox.url) as conn:
            for n, keep in enumerate((True, False, True)):
                cdc_relay_emit.emit(conn, Event(aggregate_type="order", aggregate_id="42", type="OrderPlaced", payload={"n": n}))
                conn.commit() if keep else conn.rollback()
        second = sandbox.published("OrderPlaced", "42", {"n": 2})
        first = sandbox.published("OrderPlaced")
        refused(lambda: sandbox.published("OrderPlaced", match={"n": 1}, timeout=0.1))
    return {"published": f"{first.topic} {first.key} {first.value['n']}, {second.topic} {second.key} {second.value['n']}"}


def fail_as_asked(event, conn):
    payload = event.payload or {}
    if "fails" in payload and event.attempt <= payload.get("until", event.attempt):
        FAILURES[payload["fails"]](event, conn)


def refused(check):
    """See that an assertion fails."""
    try:
        check()
    except AssertionError:
        return
    raise RuntimeError("an assertion of the test kit holds that should not")


def op_retry(until="quiet", **_):
    outcomes = []
    while True:
        outcome = inbox.retry_due()
        if outcome:
            outcomes.append(outcome)
        elif until == "quiet" and waiting():
            time.sleep(0.005)
        else:
            return {"outcomes": " ".join(outcomes)}


def from_nats(url, subjects, workers):
    from cdc_relay_inbox.nats import Runner
    return Runner(inbox, subjects, workers=workers, servers=url)


def from_rabbitmq(url, queues, workers):
    import pika

    from cdc_relay_inbox.rabbitmq import Runner
    return Runner(inbox, queues, pika.URLParameters(url), workers=workers)


def from_redis(url, streams, workers):
    import redis

    from cdc_relay_inbox.redis import Runner
    return Runner(inbox, streams, redis.Redis.from_url(url), workers=workers)


SOURCES = {"nats": from_nats, "rabbitmq": from_rabbitmq, "redis-stream": from_redis}


def op_run(topics, workers, broker="kafka", url=None, brokers=None, group=None, **_):
    from cdc_relay_inbox.kafka import Runner
    global runner, running
    if broker == "kafka":
        runner = Runner(inbox, topics, config(brokers, group), workers=workers)
    else:
        runner = SOURCES[broker](url, topics, workers)
    if LOOP:
        running = Task(aio.run(runner))
        return {}
    running = threading.Thread(target=runner.run)
    running.start()
    return {}


def op_loop(**command):
    global runner, running
    runner = Loop(**command)
    running = threading.Thread(target=runner.run)
    running.start()
    return {}


def config(brokers, group):
    return {"bootstrap.servers": ",".join(brokers), "group.id": group, "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500}


class Loop:
    """A consumer without the inbox: at least once, and a failure ends it."""

    def __init__(self, brokers, topics, group, workers):
        self.brokers, self.topics, self.group, self.workers = brokers, topics, group, workers
        self.stopped = threading.Event()
        self.stop = self.stopped.set

    def run(self):
        consumer = Consumer({**config(self.brokers, self.group), "enable.auto.commit": False,
                             "auto.offset.reset": "earliest"})
        consumer.subscribe(self.topics)
        with ThreadPoolExecutor(self.workers) as threads:
            while not self.stopped.is_set():
                partitions = defaultdict(list)
                for message in consumer.consume(500, 0.1):
                    partitions[message.partition()].append(message)
                list(threads.map(self.handle, partitions.values()))
                if partitions:
                    consumer.commit(asynchronous=True)
        consumer.close()

    def handle(self, messages):
        with pool.connection() as conn:
            for m in messages:
                payload, headers = json.loads(m.value()), dict(m.headers())
                with conn.transaction():
                    insert(conn, headers["id"].decode(), m.key().decode(), payload["n"], 1, len(json.dumps(payload)))


class Task:
    """A task in the loop, with the functions of a thread that is asked to end."""

    def __init__(self, coroutine):
        async def start():
            return asyncio.create_task(coroutine)
        self.task = asyncio.run_coroutine_threadsafe(start(), LOOP).result()

    def join(self):
        async def end():
            self.task.cancel()
            await asyncio.wait([self.task])
        asyncio.run_coroutine_threadsafe(end(), LOOP).result()


def op_stop(**_):
    if runner and not LOOP:
        runner.stop()
    if runner:
        running.join()
    pool.close()
    return {}


def waiting():
    with pool.connection() as conn:
        return conn.execute("SELECT FROM inbox_parked LIMIT 1").fetchall() != []


def die_before(n):
    """End the process before the nth statement to a server."""
    left = [n]
    execute, enter, leave = psycopg.Cursor.execute, psycopg.Transaction.__enter__, psycopg.Transaction.__exit__

    def counting(method):
        def counted(*args, **kwargs):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*args, **kwargs)
        return counted

    psycopg.Cursor.execute = counting(execute)
    psycopg.Transaction.__enter__ = counting(enter)
    psycopg.Transaction.__exit__ = counting(leave)


OPS = {name[3:]: op for name, op in globals().items() if name.startswith("op_")}

for line in sys.stdin:
    command = json.loads(line)
    try:
        answer = OPS[command.pop("op")](**command)
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
os._exit(0)
