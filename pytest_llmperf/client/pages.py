"""Plain requests beside the measured ones: metrics, models, tokenizer; on connections of their own.

Measured requests are in ``client``; what a metrics page means is in ``counters``.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from pytest_llmperf.errors import EngineError

_NEXT = "Check that the engine is up and that this address is the engine's."


class Pages:
    """The plain face of one server. Every fault is an ``EngineError``."""

    def __init__(self, url: str, *, headers: dict[str, str], trust_env: bool) -> None:
        self._url = url
        # Loading the certificate authorities takes 20 ms; only TLS has a use for them.
        is_secure = urlsplit(url).scheme == "https"
        self._http = httpx.AsyncClient(headers=headers, trust_env=trust_env, verify=is_secure)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def get_text(self, path: str, *, timeout_s: float) -> str:
        """Get a page as text."""
        response = await self._ask("GET", path, None, timeout_s)
        return response.text

    async def post_json(self, path: str, body: object, *, timeout_s: float) -> Any:  # noqa: ANN401 - JSON
        """Post JSON; give the JSON answer."""
        response = await self._ask("POST", path, msgspec.json.encode(body), timeout_s)
        try:
            return msgspec.json.decode(response.content)
        except msgspec.DecodeError as error:
            raise EngineError(
                f"POST {self._url}{path} was not answered with JSON.",
                f"{response.text[:300]!r}",
                _NEXT,
            ) from error

    async def _ask(
        self, method: str, path: str, content: bytes | None, timeout_s: float
    ) -> httpx.Response:
        headers = {} if content is None else {"Content-Type": "application/json"}
        address = path if "://" in path else self._url + path
        try:
            response = await self._http.request(
                method, address, content=content, headers=headers, timeout=timeout_s
            )
        except httpx.HTTPError as error:
            raise EngineError(
                f"{method} {address} was not answered (limit {timeout_s:g} s).",
                f"{type(error).__name__}: {error}".removesuffix(": "),
                _NEXT,
            ) from error
        if not response.is_success:
            raise EngineError(
                f"{method} {address} was answered with HTTP {response.status_code}.",
                f"{response.text[:300]!r}",
                _NEXT,
            )
        return response
