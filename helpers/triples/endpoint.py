"""A remote SPARQL endpoint, asked politely: user agent, retries with back-off, cache on disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from helpers import UserError, __version__
from helpers.kept import kept
from helpers.paths import cache_folder
from helpers.triples.store import Binding, SparqlSource

WIKIDATA = "https://query.wikidata.org/sparql"
PAGE = 10_000  # rows per query
TIMEOUT = 90  # seconds without a byte
LONGEST = 2400  # seconds until an answer is complete, pauses included
RETRY = Retry(
    3,
    redirect=False,
    allowed_methods=["POST"],
    status_forcelist=(429, 500, 502, 503, 504),
    backoff_factor=2,  # pauses of 0, 4 and 8 seconds, or what the endpoint asks for
    retry_after_max=600,
    raise_on_status=False,
)


def user_agent() -> str:
    """Name and version of this package, and whom to write to (``HELPERS_CONTACT``)."""
    contact = os.environ.get("HELPERS_CONTACT") or "no contact given"
    return f"helpers/{__version__} ({contact}) {requests.utils.default_user_agent()}"


@dataclass(frozen=True)
class Endpoint:
    """A SPARQL endpoint reached by HTTP; ``folder`` keeps its answers, by default the user's cache.

    Public endpoints require a user agent, Wikidata's with an address or page of yours, which
    ``HELPERS_CONTACT`` gives.
    """

    url: str = WIKIDATA
    folder: Path | None = None

    def select(self, query: str) -> list[Binding]:
        """Answer a SELECT query from the cache, else from the endpoint.

        Raises:
            UserError: no answer from either.
        """
        key = hashlib.sha256(f"{self.url}\n{query}".encode()).hexdigest()
        path = (self.folder or cache_folder("sparql")) / f"{key[:32]}.json"
        return kept(path, _rows, lambda scratch: scratch.write_bytes(self._ask(query)))

    def _ask(self, query: str) -> bytes:
        # In a thread, since a socket's timeout begins anew with every byte of headers and chunk sizes.
        answers = SimpleQueue[bytes | str]()
        Thread(target=lambda: answers.put(self._answer(query)), daemon=True).start()
        try:
            answer = answers.get(timeout=LONGEST)
        except Empty:
            answer = f"not complete after {LONGEST} s"
        if isinstance(answer, bytes):
            return answer
        raise UserError(
            f"{self.url} does not answer ({answer}); check the address and the network, or use"
            " the packaged facts or local files instead"
        )

    def _answer(self, query: str) -> bytes | str:
        """The answer, or what went wrong."""
        headers = {"Accept": "application/sparql-results+json", "User-Agent": user_agent()}
        # A query goes where it was sent and nowhere else.
        how: Any = {"headers": headers, "timeout": TIMEOUT, "allow_redirects": False}
        with requests.Session() as session:
            session.mount(self.url, HTTPAdapter(max_retries=RETRY))
            try:
                answer = session.post(self.url, {"query": query}, **how)
                problem = f"HTTP {answer.status_code} {answer.reason}"
                if answer.is_redirect:
                    problem += f", to {answer.headers['Location']}; if you trust it, give that"
                elif answer.ok:
                    answer.json()  # a cut-off answer is no answer
                    return answer.content
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"[:500]
        return problem


def select_pages(source: SparqlSource, query: str) -> Iterator[Binding]:
    """Rows of a query with ORDER BY, asked for page by page.

    Raises:
        UserError: an endpoint that gives the same page again, or more than a page.
    """
    before: list[Binding] = []
    for offset in count(0, PAGE):
        rows = source.select(f"{query}\nLIMIT {PAGE} OFFSET {offset}")
        if len(rows) > PAGE or (rows and rows == before):
            raise UserError(
                f"the endpoint ignores {'LIMIT' if len(rows) > PAGE else 'OFFSET'}, so its pages"
                " overlap; use another endpoint or local files"
            )
        yield from rows
        if len(rows) < PAGE:
            return
        before = rows


def _rows(path: Path) -> list[Binding]:
    """Rows of an answer in SPARQL's JSON format."""
    bindings = json.loads(path.read_bytes())["results"]["bindings"]
    return [{name: term["value"] for name, term in row.items()} for row in bindings]
