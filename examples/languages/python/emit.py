"""Places an order and emits its event in one transaction, with psycopg 3; ORDER names it. With FAIL set it fails
behind that, and neither is there.
"""
import os

import psycopg
from psycopg.types.json import Jsonb


def place(connection, order, cents):
    with connection.transaction():
        connection.execute("SELECT set_config('outbox.traceparent', %s, true)", (os.environ["TRACEPARENT"],))
        connection.execute("INSERT INTO orders (id, cents) VALUES (%s, %s)", (order, cents))
        event = connection.execute("SELECT emit(%s, %s, %s, %s, lock => true)",
                                   ("order", order, "OrderPlaced", Jsonb({"cents": cents}))).fetchone()[0]
        if os.environ.get("FAIL"):
            raise ValueError("no such customer")
        return event


with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
    print(place(connection, os.environ["ORDER"], 9990))
