"""Compress answers with gzip for clients that accept it."""

from __future__ import annotations

import asyncio
import zlib

import msgspec

from rota.server.http import Request, Response

GZIP_BYTES_MIN = 128 * 1024
"""Smaller answers are not compressed: over loopback that costs more than it saves."""
HEADERS = (("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))
FASTEST, SMALLEST = 1, 9
WITH_GZIP_HEADER = 31


def takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


async def gzipped(response: Response, request: Request) -> Response:
    """Return the answer, compressed if it is large and the client accepts gzip."""
    if len(response.body) < GZIP_BYTES_MIN or not takes_gzip(request):
        return response
    body = await asyncio.get_running_loop().run_in_executor(None, packed, response.body)
    return msgspec.structs.replace(response, body=body, headers=(*response.headers, *HEADERS))


def packed(body: bytes, level: int = FASTEST) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, WITH_GZIP_HEADER)
    return packer.compress(body) + packer.flush()
