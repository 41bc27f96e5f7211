"""What handlers may not do, and who may run beside whom."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

# Quotes, dollar quotes and comments are blanked out, so that words in them don't count.
_OPAQUE = re.compile(
    r"""--[^\n]*|/\*.*?\*/|\be'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$((?:[a-z_]\w*)?)\$.*?\$\1\$""",
    re.IGNORECASE | re.DOTALL)
_ENDS = re.compile(r"(commit|end|abort|begin|start\s+transaction|prepare\s+transaction)\b")
_ROLLS_BACK = re.compile(r"rollback\b(?!\s+((work|transaction)\s+)?to\b)")
_SETS = re.compile(r"(set(?!\s+(constraints|transaction|local)\b)|reset|listen|load|discard)\b")
_LONGEST_KEPT = 10_000  # characters of a statement whose effect is kept
_SETS_INSIDE = re.compile(r"\bset_config\b|\bpg_advisory_lock|\bpg_try_advisory_lock")


@lru_cache(maxsize=1_000)
def _effect(sql: str) -> str:
    """Return the worst that a text does: plain, local (to the transaction), setting (of the session) or end."""
    plain = _OPAQUE.sub(lambda m: " " if m.group().startswith(("--", "/*")) else " x ", sql)
    worst = "plain"
    for one in plain.lower().split(";"):
        one = one.strip()
        if _ENDS.match(one) or _ROLLS_BACK.match(one):
            return "end"
        if _SETS.match(one) or _SETS_INSIDE.search(one):
            worst = "setting"
        elif worst == "plain" and one.startswith("set "):
            worst = "local"
    return worst


class Watch:
    """What the inbox sees of a handler's use of its transaction."""

    def __init__(self) -> None:
        self.refused: Exception | None = None
        self.changed = False  # settings of the session, so that it must not be used again
        self.altered = False  # settings, be it of the transaction only, so that no other event may be in it

    def see(self, sql: str) -> None:
        """Refuse a text that ends the transaction."""
        effect = _effect(sql) if len(sql) < _LONGEST_KEPT else _effect.__wrapped__(sql)
        if effect == "end":
            self.refused = RuntimeError(f"the handler ran {sql[:80]!r}: the inbox begins and ends the transaction")
            raise self.refused
        self.changed = self.changed or effect == "setting"
        self.altered = self.altered or effect != "plain"

    def cursor(self, base: type) -> Callable[..., Any]:
        """Return a factory of cursors that look at statements."""
        def make(*args: Any, **kwargs: Any) -> Any:
            cursor = _watched(base)(*args, **kwargs)
            cursor._watch = self
            return cursor

        return make


@cache
def _watched(base: type) -> type:
    class Watched(base):  # type: ignore[misc]
        _watch: Watch

        def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
            self._watch.see(_text(query, self))
            return super().execute(query, *args, **kwargs)

        def executemany(self, query: Any, *args: Any, **kwargs: Any) -> Any:
            self._watch.see(_text(query, self))
            return super().executemany(query, *args, **kwargs)

        def stream(self, query: Any, *args: Any, **kwargs: Any) -> Any:
            self._watch.see(_text(query, self))
            return super().stream(query, *args, **kwargs)

    return Watched


def _text(query: Any, cursor: Any) -> str:
    if isinstance(query, bytes):
        return query.decode(errors="replace")
    return query if isinstance(query, str) else query.as_string(cursor)


class Solitude:
    """Lets many run together, or one alone. Who waits to be alone goes before those who come later."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._alone = False
        self._want_alone = 0

    @contextmanager
    def run(self, alone: bool) -> Iterator[None]:
        with self._changed:
            if alone:
                self._want_alone += 1
                self._changed.wait_for(lambda: self._running == 0)
                self._want_alone -= 1
                self._alone = True
            else:
                self._changed.wait_for(lambda: not self._alone and self._want_alone == 0)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._alone = False
                self._changed.notify_all()
