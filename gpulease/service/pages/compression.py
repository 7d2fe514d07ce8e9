"""Compresses scripts and styles on their way to the browser, and nothing else.

Other answers hold a token or a person's words: what is compressed beside a secret can tell it by
its length (BREACH).
"""

from __future__ import annotations

import re
from typing import Final

from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import GZipContentEncoding

_ASSET: Final = re.compile(r"/static/[^/]+/[\w/.-]+\.(js|css)")


class CompressedAssets(GZipContentEncoding):
    """Tornado's own compression, of assets alone."""

    def __init__(self, request: HTTPServerRequest) -> None:
        super().__init__(request)
        # A range is of the bytes as they are.
        self._asset = bool(_ASSET.search(request.path)) and "Range" not in request.headers

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        """Compress the beginning of an asset."""
        if not self._asset:
            return status_code, headers, chunk
        return super().transform_first_chunk(status_code, headers, chunk, finishing)

    def transform_chunk(self, chunk: bytes, finishing: bool) -> bytes:
        """Compress what follows."""
        return super().transform_chunk(chunk, finishing) if self._asset else chunk
