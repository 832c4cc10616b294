"""A stand-in for huggingface.co on loopback, for the real `datasets` and `huggingface_hub`.

Both libraries read `HF_ENDPOINT` when they are imported, so a test points a fresh process at
`StandInHub().url`. There is no Xet here: no reply names a Xet hash, so files come over HTTP.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

GOOD_TOKEN = "hf_good"
"""Sees every repository."""
STRANGER_TOKEN = "hf_stranger"
"""A valid account nobody gave access; any other token is no account at all."""

_VERBS = "revision|tree|paths-info|auth-check"
_ID = rf"(?P<id>[^/]+(?:/(?!(?:{_VERBS}|resolve)(?:/|$))[^/]+)?)"
_FILE = re.compile(rf"/datasets/{_ID}/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
_API = re.compile(
    rf"/api/datasets/{_ID}(?:/(?P<verb>{_VERBS})(?:/(?P<revision>[^/]+)(?:/(?P<path>.+))?)?)?"
)
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def parquet(rows: list[dict[str, object]]) -> bytes:
    """The rows as the bytes of a parquet file."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def jsonl(rows: Iterable[Mapping[str, object]]) -> bytes:
    """The rows as JSON, one a line."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


@dataclass
class _Repo:
    """A dataset's commits; `head` is the one `main` names."""

    head: str
    gated: bool
    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Request:
    method: str
    target: str
    authorization: str | None
    range: str | None
    body: bytes

    @property
    def token(self) -> str | None:
        return self.authorization.removeprefix("Bearer ") if self.authorization else None


@dataclass(frozen=True)
class _Reply:
    status: int
    body: bytes
    headers: dict[str, str]


class _Refused(Exception):
    """The hub's refusals: clients go by `X-Error-Code`, people read `X-Error-Message`."""

    def __init__(self, status: int, code: str | None, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.headers["X-Error-Message"] = message
        if code is not None:
            self.headers["X-Error-Code"] = code

    def reply(self) -> _Reply:
        return _json({"error": str(self)}, self.status, self.headers)


class StandInHub:
    """Serves the datasets it is given, from a thread of its own."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str | None]] = []
        """Method, path with its query, and Authorization header, in order of arrival."""
        self.broken = False
        """While set, every request gets `broken_status`."""
        self.broken_status: int = HTTPStatus.SERVICE_UNAVAILABLE
        self._repos: dict[str, _Repo] = {}
        self._server = _Server(("127.0.0.1", 0), partial(_Handler, self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def add(
        self,
        dataset: str,
        files: dict[str, bytes],
        *,
        revision: str = "0" * 39 + "1",
        gated: bool = False,
        private: bool = False,
    ) -> None:
        """A commit with exactly these files. `main` moves to it; earlier ones stay reachable."""
        repo = self._repos.setdefault(dataset, _Repo(revision, gated, private))
        repo.commits[revision] = dict(files)
        repo.head, repo.gated, repo.private = revision, gated, private

    def stop(self) -> None:
        """Connections are refused from here on."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: _Request) -> _Reply:
        self.requests.append((request.method, request.target, request.authorization))
        if self.broken:
            return _Reply(self.broken_status, b"out of order", {"Content-Type": "text/plain"})
        url = urlsplit(request.target)
        try:
            if found := _FILE.fullmatch(url.path):
                return self._file(request, **_unquoted(found))
            if found := _API.fullmatch(url.path):
                return self._api(request, parse_qs(url.query), **_unquoted(found))
            raise _Refused(HTTPStatus.NOT_FOUND, None, "Sorry, we can't find this page.")
        except _Refused as refusal:
            return refusal.reply()

    def _file(self, request: _Request, id: str, revision: str, path: str) -> _Reply:
        repo = self._visible(request, id)
        _check_gate(request, id, repo)
        commit, files = _commit(repo, revision)
        if path not in files:
            raise _no_entry(commit)
        content = files[path]
        headers = {
            "ETag": f'"{_git_oid(content)}"',
            "X-Repo-Commit": commit,
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
        }
        if request.range is None:
            return _Reply(HTTPStatus.OK, content, headers)
        part = _part(request.range, len(content))
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(content)}"
        return _Reply(HTTPStatus.PARTIAL_CONTENT, content[part.start : part.stop], headers)

    def _api(
        self,
        request: _Request,
        query: dict[str, list[str]],
        id: str,
        verb: str | None,
        revision: str | None,
        path: str | None,
    ) -> _Reply:
        """Like the real hub, names a gated repository's files to anybody; only files are gated."""
        repo = self._visible(request, id)
        if verb == "auth-check":
            _check_gate(request, id, repo)
            return _json({})
        commit, files = _commit(repo, revision or "main")
        if verb == "tree":
            recursive = query.get("recursive", [""])[0].lower() == "true"
            return _json(_tree(files, path, recursive, commit))
        if verb == "paths-info":
            paths = parse_qs(request.body.decode())["paths"]
            return _json([entry for entry in _entries(files) if entry["path"] in paths])
        return _json(
            {
                "id": id,
                "author": id.partition("/")[0],
                "sha": commit,
                "lastModified": "2024-01-01T00:00:00.000Z",
                "private": repo.private,
                "gated": "manual" if repo.gated else False,
                "disabled": False,
                "tags": [],
                "siblings": [{"rfilename": name} for name in files],
            }
        )

    def _visible(self, request: _Request, id: str) -> _Repo:
        """To a caller without access a private repository is one that does not exist."""
        if request.token not in (None, GOOD_TOKEN, STRANGER_TOKEN):
            message = "Invalid credentials in Authorization header"
            raise _Refused(HTTPStatus.UNAUTHORIZED, None, message)
        repo = self._repos.get(id)
        if repo is not None and (not repo.private or request.token == GOOD_TOKEN):
            return repo
        if request.token is None:
            message = "Invalid username or password."
            raise _Refused(HTTPStatus.UNAUTHORIZED, "RepoNotFound", message)
        raise _Refused(HTTPStatus.NOT_FOUND, "RepoNotFound", "Repository not found")


def _check_gate(request: _Request, id: str, repo: _Repo) -> None:
    if not repo.gated or request.token == GOOD_TOKEN:
        return
    restricted = f"Access to dataset {id} is restricted"
    if request.token is None:
        message = f"{restricted}. You must be authenticated to access it."
        raise _Refused(HTTPStatus.UNAUTHORIZED, "GatedRepo", message)
    message = (
        f"{restricted} and you are not in the authorized list. "
        f"Visit https://huggingface.co/datasets/{id} to ask for access."
    )
    raise _Refused(HTTPStatus.FORBIDDEN, "GatedRepo", message)


def _commit(repo: _Repo, revision: str) -> tuple[str, dict[str, bytes]]:
    commit = repo.head if revision == "main" else revision
    if commit not in repo.commits:
        message = f"Invalid rev id: {revision}"
        raise _Refused(HTTPStatus.NOT_FOUND, "RevisionNotFound", message)
    return commit, repo.commits[commit]


def _no_entry(commit: str) -> _Refused:
    """With the commit, so that the client can cache that the file does not exist."""
    return _Refused(HTTPStatus.NOT_FOUND, "EntryNotFound", "Entry not found", X_Repo_Commit=commit)


def _entries(files: dict[str, bytes]) -> list[dict[str, object]]:
    """Each file and each folder that holds one, as the tree API shows them."""
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents} - {"."}
    return [
        {"type": "directory", "oid": _git_oid(name.encode()), "size": 0, "path": name}
        for name in sorted(folders)
    ] + [
        {"type": "file", "oid": _git_oid(content), "size": len(content), "path": name}
        for name, content in sorted(files.items())
    ]


def _tree(
    files: dict[str, bytes], folder: str | None, recursive: bool, commit: str
) -> list[dict[str, object]]:
    entries = _entries(files)
    if folder in files:
        return [entry for entry in entries if entry["path"] == folder]
    root = PurePosixPath(folder or "")
    below = [entry for entry in entries if root in PurePosixPath(str(entry["path"])).parents]
    if folder and not below:
        raise _no_entry(commit)
    return [
        entry for entry in below if recursive or PurePosixPath(str(entry["path"])).parent == root
    ]


def _part(header: str, size: int) -> range:
    """The bytes a Range header asks for."""
    found = _RANGE.fullmatch(header.strip())
    first, last = found.groups() if found else ("", "")
    if first:
        part = range(int(first), min(int(last) + 1 if last else size, size))
    else:
        part = range(max(size - int(last or 0), 0), size)
    if not part:
        status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
        raise _Refused(status, None, "Range not satisfiable", Content_Range=f"bytes */{size}")
    return part


def _git_oid(content: bytes) -> str:
    """The hash git gives a blob, which the hub uses as its ETag."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _unquoted(found: re.Match[str]) -> dict[str, Any]:
    return {name: value and unquote(value) for name, value in found.groupdict().items()}


def _json(
    content: object, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> _Reply:
    body = json.dumps(content).encode()
    return _Reply(status, body, {"Content-Type": "application/json", **(headers or {})})


class _Server(ThreadingHTTPServer):
    request_queue_size = 64
    """`datasets` looks at files from 16 threads; the default queue of 5 would drop some."""


class _Handler(BaseHTTPRequestHandler):
    """One request a connection, so that none outlives `StandInHub.stop`."""

    protocol_version = "HTTP/1.1"

    def __init__(self, hub: StandInHub, *args: Any) -> None:
        self._hub = hub
        super().__init__(*args)

    def _reply(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        reply = self._hub.answer(
            _Request(
                method=self.command,
                target=self.path,
                authorization=self.headers.get("Authorization"),
                range=self.headers.get("Range"),
                body=self.rfile.read(length),
            )
        )
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    do_GET = do_HEAD = do_POST = _reply

    def log_message(self, format: str, *args: object) -> None:
        """Silent: `StandInHub.requests` has them."""
