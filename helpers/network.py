"""What went wrong on the network, in a few words instead of a library's."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

_NONE = "no connection"
# By the names of errors of requests, urllib, urllib3, httpx and Python's own, special ones first: for
# urllib3 a refused connection is a kind of timeout, for requests a timeout a kind of lost connection.
_WORDS = (
    (("SSLError", "SSLCertVerificationError"), "the connection is not secure: check certificates"),
    (("ProxyError",), "no way through the proxy"),
    (("NewConnectionError", "NameResolutionError", "ConnectionRefusedError", "gaierror"), _NONE),
    (("Timeout", "TimeoutError", "TimeoutException"), "no answer in time"),
    (("ProtocolError", "ChunkedEncodingError", "ContentDecodingError"), "the answer broke off"),
    (("ConnectionError", "NetworkError", "URLError", "MaxRetryError"), _NONE),
    (("LocalEntryNotFoundError",), _NONE),  # the hub's, which looked in its cache last
)


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those it was raised from, the outermost first."""
    waiting: list[BaseException | None] = [error]
    yielded: set[int] = set()
    while waiting:
        cause = waiting.pop(0)
        if cause is None or id(cause) in yielded:
            continue
        yielded.add(id(cause))
        yield cause
        waiting += [cause.__cause__, cause.__context__]
        reason = getattr(cause, "reason", None)  # urllib's
        if isinstance(reason, BaseException):
            waiting.append(reason)


def status_of(error: BaseException) -> int | None:
    """The status of the HTTP answer that an error, or one of its causes, is about."""
    for cause in causes(error):
        answer = getattr(cause, "response", None)
        status = getattr(answer, "status_code", None) or getattr(cause, "code", None)
        if isinstance(status, int):
            return status
    return None


def network_words(error: BaseException) -> str:
    """Why a download failed; without a failure of the network the error's own first line."""
    if (status := status_of(error)) is not None:
        phrases = {known.value: known.phrase for known in HTTPStatus}
        return f"HTTP {status} {phrases.get(status, '')}".rstrip()
    if words := _words_of(error):
        return words
    lines = str(error).strip().splitlines()
    return lines[0][:150] if lines else type(error).__name__


def is_network_error(error: BaseException) -> bool:
    """Whether a download failed because of the network."""
    return status_of(error) is not None or bool(_words_of(error))


def _words_of(error: BaseException) -> str:
    names = {kind.__name__ for each in causes(error) for kind in type(each).__mro__}
    return next((words for kinds, words in _WORDS if names & set(kinds)), "")
