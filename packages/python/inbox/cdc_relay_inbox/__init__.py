"""Handles each event once, in its key's order, in the transaction that has its effect.

The tables and the rules are those of the relay's inbox for Go.
"""

from ._inbox import Handler, Inbox, Metrics, Outcome, Retry
from ._message import Event, Message, Outage, Permanent, RetryAfter, SetBack, Unavailable

__all__ = ["Event", "Handler", "Inbox", "Message", "Metrics", "Outage", "Outcome", "Permanent", "Retry", "RetryAfter",
           "SetBack", "Unavailable"]
