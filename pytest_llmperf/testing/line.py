"""The server's end of one HTTP/1.1 connection: requests in, answers out part by part.

What is answered is decided in ``server``.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec

from pytest_llmperf.testing.scripts import Answer


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: Any = None
    """The JSON body; ``None`` without one."""
    connection: int
    """Which connection it came on, from 0."""


class Left(Exception):
    """The client is gone."""


class Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self, number: int) -> Received:
        """Read one request.

        :raises asyncio.IncompleteReadError: if the client closed the connection instead.
        """
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
        method, path, _version = first.split(" ")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return Received(
            method=method,
            path=path,
            headers=headers,
            body=msgspec.json.decode(body) if body else None,
            connection=number,
        )

    async def page(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Answer at once with a whole body."""
        await self._head(status, {**headers, "Content-Length": str(len(body))})
        await self._write(body)

    async def head(self, status: int, headers: dict[str, str]) -> None:
        """Begin an answer whose parts follow."""
        await self._head(status, {**headers, "Transfer-Encoding": "chunked"})

    async def part(self, data: bytes) -> None:
        """Write one part, as one chunk."""
        if data:
            await self._write(b"%x\r\n%s\r\n" % (len(data), data))

    async def finish(self) -> None:
        """End an answer made of parts."""
        await self._write(b"0\r\n\r\n")

    async def pause(self, seconds: float) -> None:
        """Wait, unless the client leaves first.

        :raises Left: if it does.
        """
        await asyncio.sleep(0)
        if seconds <= 0:
            if self._reader.at_eof():
                raise Left
            return
        try:
            async with asyncio.timeout(seconds):
                await self._reader.read(1)
        except TimeoutError:
            return
        raise Left

    async def until_left(self) -> None:
        """Say nothing until the client leaves.

        :raises Left: when it has.
        """
        await self._reader.read(1)
        raise Left

    async def script(self, answer: Answer) -> bool:
        """Answer by script; tell whether the connection may be used again."""
        await self.pause(answer.before_head_s)
        if not answer.as_is:
            await self.head(answer.status, answer.headers)
        for wait_s, data in answer.parts:
            await self.pause(wait_s)
            await (self._write(data) if answer.as_is else self.part(data))
        if answer.ending == "hang":
            await self.until_left()
        if answer.as_is or answer.ending == "cut":
            return False
        await self.finish()
        return True

    async def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await self._write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
