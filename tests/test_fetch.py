"""Files are found locally, checked, downloaded once, or asked for by name."""

import functools
import hashlib
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from helpers import UserError
from helpers.fetch import Resource, locate
from helpers.paths import cache_folder

CONTENT = b'[{"case_id": 0}]\n'
SHA256 = hashlib.sha256(CONTENT).hexdigest()
# `printf '[{"case_id": 0}]\n' | git hash-object --stdin`
GIT_BLOB = "635fc1234b9c95992853338b41c2289c0021242e"


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Address of a loopback server that holds records.json."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "records.json").write_bytes(CONTENT)
    handler = functools.partial(_QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HELPERS_DATA", raising=False)
    monkeypatch.setenv("HELPERS_CACHE", str(tmp_path / "cache"))


def resource(url: str = "http://127.0.0.1:9/records.json", **changes: str | None) -> Resource:
    fields: dict = {
        "name": "records",
        "relative_path": "folder/records.json",
        "url": url,
        "sha256": SHA256,
        "licence": "none stated",
    }
    return Resource(**(fields | changes))


def put(folder: Path, content: bytes) -> Path:
    path = folder / "folder" / "records.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_the_data_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = put(tmp_path / "data", CONTENT)
    put(cache_folder("data"), CONTENT)
    monkeypatch.setenv("HELPERS_DATA", str(tmp_path / "data"))
    assert locate(resource()) == local


def test_a_stale_local_file_is_an_error_and_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = put(tmp_path / "data", CONTENT + b" ")
    monkeypatch.setenv("HELPERS_DATA", str(tmp_path / "data"))
    with pytest.raises(UserError, match="not the published file") as caught:
        locate(resource())
    assert str(local) in str(caught.value)
    assert SHA256 in str(caught.value)
    assert local.read_bytes() == CONTENT + b" "


@pytest.mark.parametrize("check", [{}, {"sha256": None, "git_blob": GIT_BLOB}])
def test_download_then_cache(server: str, check: dict, tmp_path: Path) -> None:
    wanted = resource(f"{server}/records.json", **check)
    path = locate(wanted)
    assert path == cache_folder("data") / "folder" / "records.json"
    assert path.read_bytes() == CONTENT
    (tmp_path / "site" / "records.json").unlink()
    assert locate(wanted) == path


@pytest.mark.parametrize("check", [{"sha256": "0" * 64}, {"sha256": None, "git_blob": "0" * 40}])
def test_a_download_with_another_content_is_refused(server: str, check: dict) -> None:
    wanted = resource(f"{server}/records.json", **check)
    with pytest.raises(UserError, match="records"):
        locate(wanted)
    assert not (cache_folder("data") / "folder" / "records.json").exists()


def test_a_damaged_cache_is_replaced(server: str) -> None:
    cached = put(cache_folder("data"), CONTENT[:4])
    assert locate(resource(f"{server}/records.json")) == cached
    assert cached.read_bytes() == CONTENT


@pytest.mark.parametrize("download", [True, False])
def test_a_missing_file_says_what_to_put_where(download: bool) -> None:
    wanted = resource("http://127.0.0.1:9/records.json")
    with pytest.raises(UserError) as caught:
        locate(wanted, download=download)
    for part in (wanted.url, SHA256, "$HELPERS_DATA/folder/records.json", "none stated"):
        assert part in str(caught.value)
