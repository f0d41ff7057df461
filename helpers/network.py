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
    errors_to_visit: list[BaseException | None] = [error]
    visited_ids: set[int] = set()
    while errors_to_visit:
        cause = errors_to_visit.pop(0)
        if cause is None or id(cause) in visited_ids:
            continue
        visited_ids.add(id(cause))
        yield cause
        errors_to_visit += [cause.__cause__, cause.__context__]
        urllib_reason = getattr(cause, "reason", None)  # urllib's
        if isinstance(urllib_reason, BaseException):
            errors_to_visit.append(urllib_reason)


def status_of(error: BaseException) -> int | None:
    """The status of the HTTP answer that an error, or one of its causes, is about."""
    for cause in causes(error):
        http_answer = getattr(cause, "response", None)
        status = getattr(http_answer, "status_code", None) or getattr(cause, "code", None)
        if isinstance(status, int):
            return status
    return None


def network_words(error: BaseException) -> str:
    """Why a download failed; without a failure of the network the error's own first line."""
    if (status := status_of(error)) is not None:
        phrase_of_status = {http_status.value: http_status.phrase for http_status in HTTPStatus}
        return f"HTTP {status} {phrase_of_status.get(status, '')}".rstrip()
    if failure_words := _words_of(error):
        return failure_words
    error_lines = str(error).strip().splitlines()
    return error_lines[0][:150] if error_lines else type(error).__name__


def is_network_error(error: BaseException) -> bool:
    """Whether a download failed because of the network."""
    return status_of(error) is not None or bool(_words_of(error))


def _words_of(error: BaseException) -> str:
    class_names: set[str] = set()
    for cause in causes(error):
        class_names |= {error_class.__name__ for error_class in type(cause).__mro__}
    for names_of_kind, failure_words in _WORDS:
        if class_names & set(names_of_kind):
            return failure_words
    return ""
