"""Bytes of a server-sent-events stream -> events, incrementally and whatever way they were cut.

What an event's data means is in ``delta`` and ``stream``; reading from the network: ``exchange``.
Source: WHATWG HTML, section "Server-sent events", with one departure: an event whose data is empty
is not dispatched, since servers and proxies make such events out of keep-alives.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\r|\n")
"""The only three line ends; U+0085, U+2028 and U+2029 inside JSON are text."""

_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One dispatched event. ``at_ns`` is the stamp of the read that completed it."""

    at_ns: int
    data: str
    event: str = "message"
    id: str = ""


class Parser:
    """An incremental parser of one stream; feed it each read with the read's stamp."""

    def __init__(self) -> None:
        self.retry_ms: int | None = None
        """The reconnection time that the server asked for, if it did."""
        self._head: bytes | None = b""
        self._partial = bytearray()
        self._skip_line_feed = False
        self._data: list[str] = []
        self._event = ""
        self._id = ""

    def feed(self, data: bytes, at_ns: int) -> list[Event]:
        """Take one read; give the events that it completed, stamped ``at_ns``."""
        data = self._without_bom(data)
        if self._skip_line_feed and data:
            self._skip_line_feed = False
            data = data.removeprefix(b"\n")
        if not data:
            return []
        # A carriage return ends its line at once, so that a complete event is not held back until
        # the next read shows whether a line feed belongs to it.
        self._skip_line_feed = data.endswith(b"\r")
        first, *rest = _LINE_END.split(data)
        self._partial += first
        events = []
        for piece in rest:
            event = self._line(bytes(self._partial), at_ns)
            self._partial = bytearray(piece)
            if event is not None:
                events.append(event)
        return events

    def leftover(self) -> bytes:
        """What the standard discards at the end of the stream: the start of an unfinished event.

        Empty when the stream ended where an event may end; an unfinished comment is nothing.
        """
        partial = bytes(self._head or b"") + bytes(self._partial)
        pending = [f"data: {line}".encode() for line in self._data]
        if partial and not partial.startswith(b":"):
            pending.append(partial)
        return b"\n".join(pending)

    def _without_bom(self, data: bytes) -> bytes:
        if self._head is None:
            return data
        self._head += data
        if len(self._head) < len(_BOM) and _BOM.startswith(self._head):
            return b""
        start, self._head = self._head, None
        return start.removeprefix(_BOM)

    def _line(self, line: bytes, at_ns: int) -> Event | None:
        if not line:
            return self._dispatch(at_ns)
        field, _, value = line.decode("utf-8", errors="replace").partition(":")
        self._field(field, value.removeprefix(" "))
        return None

    def _field(self, field: str, value: str) -> None:
        # A comment has an empty field name, and like every unknown field it is ignored.
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._event = value
        elif field == "id" and "\0" not in value:
            self._id = value
        elif field == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value)

    def _dispatch(self, at_ns: int) -> Event | None:
        data, event = "\n".join(self._data), self._event
        self._data, self._event = [], ""
        if not data:
            return None
        return Event(at_ns, data, event or "message", self._id)
