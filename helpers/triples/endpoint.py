"""A remote SPARQL endpoint, asked politely: user agent, retries with back-off, cache on disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from helpers import UserError, __version__
from helpers.kept import load_or_make
from helpers.network import network_words
from helpers.paths import cache_folder
from helpers.triples.store import Binding, TripleStore

WIKIDATA = "https://query.wikidata.org/sparql"
PAGE = 10_000  # rows per query
TIMEOUT = 90  # seconds without a byte
RETRY = Retry(
    3,
    redirect=False,
    allowed_methods=["POST"],
    status_forcelist=(429, 500, 502, 503, 504),
    backoff_factor=2,  # pauses of 0, 4 and 8 seconds, or what the endpoint asks for
    retry_after_max=600,
    raise_on_status=False,
)


@dataclass(frozen=True)
class Endpoint:
    """A SPARQL endpoint reached by HTTP; ``folder`` keeps its answers, by default the user's cache."""

    url: str = WIKIDATA
    folder: Path | None = None

    def select(self, query: str) -> list[Binding]:
        """Answer a SELECT query from the cache, else from the endpoint; a UserError without either."""
        query_digest = hashlib.sha256(f"{self.url}\n{query}".encode()).hexdigest()
        path = (self.folder or cache_folder("sparql")) / f"{query_digest[:32]}.json"
        return load_or_make(
            path, _bindings_of, lambda scratch: scratch.write_bytes(self._ask(query))
        )

    def _ask(self, query: str) -> bytes:
        # Public endpoints ask for a user agent, Wikidata's with an address or page of yours.
        contact = os.environ.get("HELPERS_CONTACT") or "no contact given"
        agent = f"helpers/{__version__} ({contact}) {requests.utils.default_user_agent()}"
        headers = {"Accept": "application/sparql-results+json", "User-Agent": agent}
        try:
            with requests.Session() as session:
                session.mount(self.url, HTTPAdapter(max_retries=RETRY))
                answer = session.post(
                    self.url,
                    {"query": query},
                    headers=headers,
                    timeout=TIMEOUT,
                    allow_redirects=False,  # a query goes where it was sent
                )
            if answer.status_code != 200:
                raise requests.HTTPError(response=answer)
            answer.json()  # a cut-off answer is no answer
        except requests.RequestException as error:
            raise UserError(
                f"{self.url} does not answer ({network_words(error)}); check address and"
                " network, or use packaged facts or local files"
            ) from error
        return answer.content


Source = TripleStore | Endpoint


def select_pages(source: Source, query: str) -> Iterator[Binding]:
    """Rows of a query with ORDER BY, asked for page by page."""
    for offset in count(0, PAGE):
        page = source.select(f"{query}\nLIMIT {PAGE} OFFSET {offset}")
        yield from page
        if len(page) < PAGE:
            return


def _bindings_of(path: Path) -> list[Binding]:
    """Rows of an answer in SPARQL's JSON format."""
    bindings = json.loads(path.read_bytes())["results"]["bindings"]
    return [{variable: term["value"] for variable, term in binding.items()} for binding in bindings]
