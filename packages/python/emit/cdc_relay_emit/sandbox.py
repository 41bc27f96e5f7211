"""A Postgres and a relay of your own, for tests from the commit to the message."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from dataclasses import dataclass
from typing import IO, Any, Self

_PROGRAM = "cdc-relay-demo"
_STOPPING = 30.0


@dataclass(frozen=True, kw_only=True)
class Published:
    """A message of the relay."""

    topic: str
    key: str | None
    headers: dict[str, str]
    value: Any
    """Decoded from JSON. None: a tombstone."""


class Sandbox:
    """
    Runs cdc-relay-demo sandbox: a Postgres with an outbox, and a relay that hands over its messages. Use it with `with`.

    program is its path; by default it is looked for in PATH. The database is empty but for the outbox, the relay's tables
    and the function emit.
    """

    url: str
    """Of the database, for psycopg."""

    def __init__(self, program: str = _PROGRAM) -> None:
        found = shutil.which(program)
        if found is None:
            raise FileNotFoundError(f"{program} is not installed: see docs/install.md of cdc-relay, or name its path")
        self._program = found
        self._changed = threading.Condition()
        self._messages: list[Published] = []
        self._ended = False

    @staticmethod
    def installed() -> bool:
        """Report whether the program is in PATH, for tests that are left out without it."""
        return shutil.which(_PROGRAM) is not None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([self._program, "sandbox"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self._out.readline()
        if not line:
            raise RuntimeError(f"{self._program} ended with code {self._process.wait()}; standard error tells why")
        self.url = json.loads(line)["postgres_url"]
        self._reader = threading.Thread(target=self._read, name="sandbox", daemon=True)
        self._reader.start()
        return self

    @property
    def _out(self) -> IO[str]:
        assert self._process.stdout
        return self._process.stdout

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(_STOPPING)
        finally:
            self._process.kill()
            self._reader.join()
            self._out.close()

    def _read(self) -> None:
        for line in self._out:
            fields = json.loads(line)
            message = Published(topic=fields["topic"], key=fields["key"], value=fields["value"],
                                headers={h["key"]: h["value"] for h in fields["headers"]})
            with self._changed:
                self._messages.append(message)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def messages(self) -> list[Published]:
        """What was published so far."""
        with self._changed:
            return list(self._messages)

    def published(self, type: str, key: str | None = None, match: dict[str, Any] | None = None,
                  timeout: float = 30.0) -> Published:
        """
        Wait for a message and return the first that fits. Raise AssertionError after timeout seconds.

        key is the aggregate's id; match has fields that the value must have, with these values.
        """
        def fits(m: Published) -> bool:
            return m.headers.get("event_type") == type and key in (None, m.key) and all(
                isinstance(m.value, dict) and name in m.value and m.value[name] == value
                for name, value in (match or {}).items())

        with self._changed:
            self._changed.wait_for(lambda: self._ended or any(map(fits, self._messages)), timeout)
            for message in filter(fits, self._messages):
                return message
            ended = ": the relay has ended, and standard error tells why" if self._ended else ""
            raise AssertionError(f"no message {type} of {key or 'any aggregate'} with {match or {}} was published{ended}; "
                                 f"there are {self._messages}")
