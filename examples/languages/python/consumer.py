"""Handles each event once, in its key's order, with psycopg 3. Messages come as lines of JSON on standard input: put
your Kafka client's loop there, and commit its offset behind each message, or with enable.auto.commit off every second.
"""
import json
import os
import sys
import time

import psycopg
from psycopg.pq import TransactionStatus

NAME = "billing"
MAX_ATTEMPTS = 5


def effect(connection, key, payload):
    if payload.get("fails"):
        raise ValueError("no such customer")
    connection.execute("INSERT INTO invoice (customer, seq) VALUES (%s, %s)", (key, payload["seq"]))


def within(connection, key, payload):
    """Has the effect, and looks at the transaction: Postgres rolls back one in which a statement failed, without an error."""
    effect(connection, key, payload)
    if connection.info.transaction_status == TransactionStatus.INERROR:
        raise RuntimeError("a statement failed and the handler went on")


def handle(connection, m):
    """Decides a message: it has had its effect, or is parked, when this returns."""
    at = (m["topic"], m["partition"], m["key"].encode())
    park = """SELECT inbox_park(%s, %s, topic => %s, partition => %s, "offset" => %s, key => %s, value => %s,
              error => %s, next_at => now() + %s * interval '1 second')"""
    stored = (NAME, m["id"], *at[:2], m["offset"], at[2], json.dumps(m["payload"]).encode())
    try:
        with connection.transaction():
            state = connection.execute("SELECT inbox_claim(%s, %s, %s, %s, %s)", (NAME, m["id"], *at)).fetchone()[0]
            if state == "new":
                within(connection, m["key"], m["payload"])
            elif state == "behind":  # an earlier one of its key is parked; no time: it waits for that one
                connection.execute(park, (*stored, "", None))
    except Exception as error:  # the event's fault, whatever it is, unless the session is lost: then it comes again
        if connection.closed:
            raise
        with connection.transaction():
            connection.execute(park, (*stored, str(error), 0.05))


def retry(connection):
    """Tries a parked event whose time has come, and returns whether there was one."""
    due = None
    try:
        with connection.transaction():
            due = connection.execute(
                "SELECT id, key, value, attempts FROM inbox_take(%s)", (NAME,)).fetchone()
            if due is None:
                return False
            within(connection, due[1].decode(), json.loads(due[2]))
            connection.execute("SELECT inbox_done(%s, %s)", (NAME, due[0]))
    except Exception as error:
        if connection.closed or due is None:
            raise
        again = 0.05 if due[3] + 1 < MAX_ATTEMPTS else None  # None: a dead letter
        with connection.transaction():
            connection.execute("SELECT inbox_failed(%s, %s, %s, now() + %s * interval '1 second')",
                               (NAME, due[0], str(error), again))
    return True


def main():
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        for line in sys.stdin:
            handle(connection, json.loads(line))
            while retry(connection):
                pass
        left = "SELECT count(*) FROM inbox_parked"
        while connection.execute(left).fetchone()[0] > 0:  # a consumer that goes on looks now and then
            if not retry(connection):
                time.sleep(0.01)


main()
