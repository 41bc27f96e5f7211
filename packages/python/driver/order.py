"""Reads a queue of RabbitMQ again and again while messages arrive, and prints what is wrong with their order."""

import itertools
import sys
import threading

import pika

from cdc_relay_inbox._topics import WINDOW
from cdc_relay_inbox.rabbitmq import _Queue

NAME, TURNS, HELD = "orders", 10, 100


def publish(parameters: pika.connection.Parameters, stop: threading.Event) -> None:
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        for n in itertools.count(1):
            channel.basic_publish("", NAME, str(n).encode(), pika.BasicProperties(delivery_mode=2))
            if n % 5 == 0 and stop.wait(0.001):
                return


def read(parameters: pika.connection.Parameters) -> list[int]:
    """Read a window, settle it, and close the queue while it holds more and others arrive."""
    queue = _Queue(NAME, parameters)
    while queue._look().consumer_count:  # RabbitMQ forgets the one before some time after it has closed
        queue._connection.sleep(0.01)
    queue.seek(0)
    while len(queue._arrived) < WINDOW + HELD:
        queue._connection.process_data_events(0.01)
    got = [int(m.value or b"") for m in queue.next()]
    queue.settle()
    queue.close(False)
    return got


parameters = pika.URLParameters(sys.argv[1])
with pika.BlockingConnection(parameters) as connection:
    connection.channel().queue_declare(NAME, durable=True, arguments={
        "x-queue-type": "quorum", "x-single-active-consumer": True})
stop = threading.Event()
publisher = threading.Thread(target=publish, args=(parameters, stop), daemon=True)
publisher.start()
last = 0
for _ in range(TURNS):
    for n in read(parameters):
        if n != last + 1:
            print(f"{n} after {last}")
        last = n
stop.set()
publisher.join()
