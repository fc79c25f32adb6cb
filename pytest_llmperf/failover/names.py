"""A server's name looked up once, and pinned to the first of its addresses that takes a connection.

Look-up and connecting are timed apart, outside of any request. Sending requests is in ``client``.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

import msgspec

from pytest_llmperf.record import Endpoint

CONNECT_S = 5.0
"""How long one address is given to take a connection before the next one is tried."""

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
Connect = Callable[[str, int], Awaitable[None]]


async def look_up(host: str, port: int) -> list[str]:
    """All addresses of a name, as the system orders them.

    :raises OSError: the name is not known.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


async def try_connection(address: str, port: int) -> None:
    """Connect and leave again.

    :raises OSError: nothing takes connections there, or not in time.
    """
    _, writer = await asyncio.wait_for(asyncio.open_connection(address, port), CONNECT_S)
    writer.close()
    await writer.wait_closed()


async def pin(
    start: Endpoint,
    *,
    clock: Callable[[], int],
    lookup: Lookup = look_up,
    connect: Connect = try_connection,
) -> Endpoint:
    """Look up the name in an endpoint's address, and find the address that takes connections.

    Nothing is raised: what went wrong is the ``problem`` of the record that is returned.
    """
    parts = urlsplit(start.url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    begun = clock()
    try:
        addresses = [host] if _is_address(host) else list(await lookup(host, port))
    except OSError as error:
        return _with(start, lookup_ns=clock() - begun, problem=f"{host} is not known: {error}")
    asked = clock()
    lookup_ns = None if _is_address(host) else asked - begun
    problems = []
    for each in addresses:
        try:
            await connect(each, port)
        except (OSError, TimeoutError) as error:
            problems.append(f"{each}: {str(error) or 'no connection in time'}")
            continue
        return _with(
            start,
            lookup_ns=lookup_ns,
            addresses=tuple(addresses),
            pinned=each,
            connect_ns=clock() - asked,
            problem="; ".join(problems) or None,
        )
    problem = "; ".join(problems) or f"{host} has no address"
    return _with(start, lookup_ns=lookup_ns, addresses=tuple(addresses), problem=problem)


def _with(start: Endpoint, **found: object) -> Endpoint:
    return msgspec.structs.replace(start, **found)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
