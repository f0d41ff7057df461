"""A remote SPARQL endpoint, asked politely: user agent, retries with back-off, cache on disk."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue

from helpers import UserError, __version__
from helpers.kept import kept_whole, sound
from helpers.paths import cache_folder
from helpers.triples.triple_store import Binding, SparqlSource

WIKIDATA = "https://query.wikidata.org/sparql"
LONGEST_WAIT = 600.0  # seconds, whatever an endpoint asks for
LONGEST_ANSWER = 300.0  # seconds, from the request to the answer's last byte
LARGEST_ANSWER = 256 * 2**20  # bytes
_RETRIED = (429, 500, 502, 503, 504)


class EndpointError(UserError):
    """An endpoint that does not answer, with nothing in the cache."""


class TooLargeError(EndpointError):
    """An answer that is not read to its end."""


def user_agent() -> str:
    """Name and version of this package, and whom to write to (``HELPERS_CONTACT``)."""
    contact = os.environ.get("HELPERS_CONTACT") or "no contact given"
    return f"helpers/{__version__} ({contact}) Python-urllib"


@dataclass
class Endpoint:
    """A SPARQL endpoint reached by HTTP.

    Attributes:
        url: address, such as ``WIKIDATA``.
        user_agent: says who asks; public endpoints require it, Wikidata's with an address or page
            of yours, which ``HELPERS_CONTACT`` gives.
        folder: cache of answers; default: the user's cache.
        refresh: ask anew even for what is cached; the cache still answers when the endpoint fails.
        attempts: how often a query is sent before giving up.
        backoff: seconds before the second attempt; doubled before each further one.
        timeout: seconds without an answer.
        sleep: how to wait.
    """

    url: str = WIKIDATA
    user_agent: str = field(default_factory=user_agent)
    folder: Path | None = None
    refresh: bool = False
    attempts: int = 4
    backoff: float = 2.0
    timeout: float = 90.0
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    def select(self, query: str) -> list[Binding]:
        """Answer a SELECT query from the cache, else from the endpoint.

        Raises:
            EndpointError: no answer from either.
        """
        path = self._cached(query)
        kept = sound(path, lambda file: _rows(file.read_bytes()))
        if kept is not None and not self.refresh:
            return kept
        try:
            content = self._ask(query)
        except EndpointError as error:
            if kept is not None:
                warnings.warn(f"{error}; using the cached answer {path}", stacklevel=2)
                return kept
            raise
        rows = _rows(content)
        with kept_whole(path) as scratch:
            scratch.write_bytes(content)
        return rows

    def _cached(self, query: str) -> Path:
        folder = self.folder or cache_folder("sparql")
        key = hashlib.sha256(f"{self.url}\n{query}".encode()).hexdigest()
        return folder / f"{key[:32]}.json"

    def _ask(self, query: str) -> bytes:
        """Send the query until it is answered, with growing pauses."""
        opener = urllib.request.build_opener(_NoRedirects)
        request = urllib.request.Request(
            self.url,
            data=urllib.parse.urlencode({"query": query}).encode(),
            headers={
                "Accept": "application/sparql-results+json",
                "User-Agent": self.user_agent,
            },
        )
        problem = ""
        for attempt in range(self.attempts):
            wait = self.backoff * 2**attempt
            try:
                content = _in_time(lambda: _answer(opener, request, self.timeout))
                _rows(content)  # a cut-off answer is no answer
                return content
            except TooLargeError as error:
                problem = str(error)
                break
            except urllib.error.HTTPError as error:
                problem = f"HTTP {error.code} {error.reason}"
                if 300 <= error.code < 400:
                    to = str(error.headers.get("Location"))[:200]
                    problem += f", to {to}; if you trust it, give that address"
                if error.code not in _RETRIED:
                    break
                wait = max(wait, min(LONGEST_WAIT, _seconds(error.headers.get("Retry-After"))))
            except (OSError, ValueError, http.client.HTTPException) as error:
                problem = f"{type(error).__name__}: {error}"[:500]
            if attempt + 1 < self.attempts:
                self.sleep(wait)
        raise EndpointError(
            f"{self.url} does not answer ({problem}); check the address and the network, or use"
            " the packaged facts or local files instead"
        )


def select_pages(source: SparqlSource, query: str, *, page: int = 10_000) -> Iterator[Binding]:
    """Rows of a query with ORDER BY, asked for page by page.

    Raises:
        ValueError: a query without ORDER BY, whose pages would overlap.
        EndpointError: an endpoint that gives the same page again, or more than a page.
    """
    if "ORDER BY" not in query:
        raise ValueError("paging needs a query with ORDER BY")
    offset = 0
    before: list[Binding] = []
    while True:
        rows = source.select(f"{query}\nLIMIT {page} OFFSET {offset}")
        if len(rows) > page or (rows and rows == before):
            raise EndpointError(
                f"the endpoint ignores {'LIMIT' if len(rows) > page else 'OFFSET'}, so that pages"
                " cannot be told apart; use another endpoint or local files"
            )
        before = rows
        yield from rows
        if len(rows) < page:
            return
        offset += page


def _rows(content: bytes) -> list[Binding]:
    """Rows of an answer in SPARQL's JSON format.

    Raises:
        ValueError: another format, or a cut-off answer.
    """
    try:
        bindings = json.loads(content)["results"]["bindings"]
        rows = [{name: term["value"] for name, term in row.items()} for row in bindings]
        "".join(value for row in rows for value in row.values()).encode()  # no half characters
        return rows
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not an answer in SPARQL's JSON format: {error}") from error


def _seconds(retry_after: str | None) -> float:
    """Seconds that a header asks to wait; a date, or nonsense, asks for none."""
    text = (retry_after or "").strip()
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _in_time(ask: Callable[[], bytes]) -> bytes:
    """What is answered within ``LONGEST_ANSWER``.

    A socket's timeout begins anew with every byte, in headers, chunk sizes and ``100 Continue`` alike, so
    that the request is left to a thread, which ends with the process if it never does.
    """
    answers: SimpleQueue[bytes | BaseException] = SimpleQueue()

    def work() -> None:
        try:
            answers.put(ask())
        except BaseException as error:
            answers.put(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        answer = answers.get(timeout=LONGEST_ANSWER)
    except Empty:
        raise TimeoutError(f"its answer is not complete after {LONGEST_ANSWER:.0f} s") from None
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _answer(
    opener: urllib.request.OpenerDirector, request: urllib.request.Request, timeout: float
) -> bytes:
    """An answer's bytes.

    Raises:
        TooLargeError: more than ``LARGEST_ANSWER``.
        http.client.IncompleteRead: the connection was cut.
    """
    with opener.open(request, timeout=timeout) as response:
        content: bytes = response.read(LARGEST_ANSWER + 1)
        if len(content) > LARGEST_ANSWER:
            raise TooLargeError(f"its answer is larger than {LARGEST_ANSWER >> 20} MiB")
        if response.length:  # of the bytes it announced, so many did not come
            raise http.client.IncompleteRead(b"", response.length)
        return content


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A query goes where it was sent and nowhere else; a redirect would also make it a GET."""

    def redirect_request(self, *_: object) -> None:
        return None
