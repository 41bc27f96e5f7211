"""Tries parked events when they are due, and forgets old ids."""

from __future__ import annotations

import logging
import threading
import time

from ._inbox import Inbox

_log = logging.getLogger("cdc_relay_inbox")
_FORGET_EVERY = 60.0
_RETRY_EVERY = 0.25


def retry(inbox: Inbox, stop: threading.Event) -> None:
    """Work until stop."""
    forgot = time.monotonic()
    while not stop.is_set():
        try:
            if inbox.retry_due() is not None:
                continue
            if time.monotonic() - forgot > _FORGET_EVERY:
                forgot = time.monotonic()
                inbox.ledger.forget(inbox.keep)
        except Exception as error:
            _log.error("retries: %s", error)
            stop.wait(1)
        due = inbox.due_at
        if due <= time.monotonic():
            inbox.due_at = float("inf")
        stop.wait(max(0.005, min(due - time.monotonic(), _RETRY_EVERY)))
