"""Buckets of the Hugging Face Hub by the Hub's own API: the way that needs a token and no S3 keys.

`hf://buckets/namespace/name/prefix` leads here when the environment has no keys for the Hub's S3
gateway, which is the better way (doc/hub.md). The API has no conditional writes: a run here has one
writer at a time, which must be said (`wisp.init(run, single_writer=True)`), and a second one is
found out, not kept out. Needs `huggingface_hub` with `hf_xet`.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from .errors import DeniedError, InvalidError, NotFoundError, UnavailableError
from .stores import Store

__all__ = ["HubStore"]

#: What is larger is kept in a temporary folder between reads of its ranges, up to so many bytes.
_KEPT_ABOVE = 1 << 20
_KEPT_BYTES = 8 << 30
#: How long the ranges of one object are taken from what was fetched for the first of them.
_RANGE_SECONDS = 60.0
_HASH = re.compile(r"[0-9a-f]{64}")


def _hub() -> ModuleType:
    try:
        import hf_xet  # noqa: F401
        import huggingface_hub
    except ImportError as missing:
        raise DeniedError(
            "without S3 keys a bucket of the Hub is reached through huggingface_hub and hf_xet, "
            f"which are not installed ({missing}): pip install 'wisp-sync[hub]'; or set "
            "HF_S3_ACCESS_KEY_ID and HF_S3_SECRET_ACCESS_KEY"
        ) from None
    if not hasattr(huggingface_hub.HfApi, "batch_bucket_files"):
        raise DeniedError(
            f"huggingface_hub {huggingface_hub.__version__} knows no buckets: "
            "pip install 'wisp-sync[hub]'"
        )
    return cast(ModuleType, huggingface_hub)


class _Kept:
    """Large objects on disk, by the hash of their content, so that they can never be stale."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wisp-hub-"))
        self._files: OrderedDict[str, int] = OrderedDict()
        self._fetching: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, _remove, self.folder, os.getpid())

    def open(self, name: str, size: int, fetch: Callable[[Path], None]) -> int:
        """A descriptor of the object, fetched once however many ask for it."""
        with self._lock:
            gate = self._fetching.setdefault(name, threading.Lock())
        with gate:
            path = self.folder / name
            if not path.exists():
                partial = self.folder / f"{name}.{threading.get_ident()}"
                try:
                    fetch(partial)
                    os.replace(partial, path)
                finally:
                    partial.unlink(missing_ok=True)
            descriptor = os.open(path, os.O_RDONLY)
            self._note(name, size)
        return descriptor

    def _note(self, name: str, size: int) -> None:
        with self._lock:
            self._files[name] = size
            self._files.move_to_end(name)
            while len(self._files) > 1 and sum(self._files.values()) > _KEPT_BYTES:
                oldest, _ = self._files.popitem(last=False)
                self._fetching.pop(oldest, None)
                (self.folder / oldest).unlink(missing_ok=True)


class HubStore(Store):
    """A bucket of the Hub, `HubStore("namespace/name")`; token and endpoint as huggingface_hub's.

    A missing object is NotFoundError, never passed over. Large objects travel between the Hub and
    files.
    """

    creates_exclusively = False
    few_requests = True

    def __init__(
        self,
        bucket: str,
        *,
        token: str | None = None,
        endpoint: str | None = None,
        better: str = "",
    ) -> None:
        hub = _hub()
        hub.utils.disable_progress_bars()
        endpoint = endpoint or os.environ.get("HF_ENDPOINT") or None
        self._hub = hub
        self._api = hub.HfApi(endpoint=endpoint, token=token)
        self._bucket = bucket
        self._kept = _Kept()
        self._seen: dict[str, tuple[float, str, int]] = {}
        self.label = f"hf://buckets/{bucket}"
        self.way = (
            f"the Hugging Face Hub by its own API at {self._api.endpoint} (huggingface_hub "
            f"{hub.__version__}): no conditional writes, so one writer at a time; a second one is "
            "noticed by its followers, not kept out"
        )
        self.better = better
        self.poll = _poll_seconds()

    def create_bucket(self, *, private: bool = True) -> None:
        """Makes the bucket itself, if it is not there."""
        with self._told("create the bucket"):
            self._api.create_bucket(self._bucket, private=private, exist_ok=True)

    def put(self, key: str, data: bytes) -> None:
        self._add(key, data)

    def put_file(self, key: str, path: str) -> None:
        """As put(), of what a file holds; wisp hands large objects over this way."""
        self._add(key, Path(path))

    def _add(self, key: str, source: bytes | Path) -> None:
        self._seen.pop(key, None)
        with self._told(f"write '{key}'"):
            self._api.batch_bucket_files(self._bucket, add=[(source, key)])
        self._seen.pop(key, None)

    def create(self, key: str, data: bytes) -> bool:
        """What the API allows: a look, then a write. Two at once may both be told True."""
        try:
            self._metadata(key)
        except NotFoundError:
            self._add(key, data)
            return True
        return False

    def read(self, key: str, offset: int, size: int) -> bytes:
        content, length = self._content_of(key, offset)
        if offset >= length or size == 0:
            return b""
        if length <= _KEPT_ABOVE:
            return self._small(key, content, length)[offset : offset + size]
        descriptor = self._kept.open(
            content, length, lambda to: self._fetch(key, content, length, to)
        )
        try:
            return os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)

    def _content_of(self, key: str, offset: int) -> tuple[str, int]:
        """Which content the object has now; within a minute, ranges further on are of the same."""
        known = self._seen.get(key)
        if offset > 0 and known is not None and time.monotonic() - known[0] < _RANGE_SECONDS:
            return known[1], known[2]
        content, length = self._metadata(key)
        if length > _KEPT_ABOVE:
            self._seen[key] = (time.monotonic(), content, length)
        return content, length

    def _metadata(self, key: str) -> tuple[str, int]:
        # By the resolver, of which an account has five times as many calls as of the API.
        with self._told(f"read '{key}'"):
            found = self._api.get_bucket_file_metadata(self._bucket, key)
        content = found.xet_file_data.file_hash
        if not _HASH.fullmatch(content):
            raise UnavailableError(
                f"{self.label}: '{key}' has no hash that Xet could know; try again"
            )
        return content, found.size

    def _small(self, key: str, content: str, length: int) -> bytes:
        with tempfile.TemporaryDirectory(dir=self._kept.folder) as folder:
            self._fetch(key, content, length, Path(folder, "object"))
            return Path(folder, "object").read_bytes()

    def _fetch(self, key: str, content: str, length: int, to: Path) -> None:
        exact = self._hub.BucketFile(type="file", path=key, size=length, xetHash=content)
        with self._told(f"read '{key}'"):
            self._api.download_bucket_files(
                self._bucket, [(exact, to)], raise_on_missing_files=True
            )
        came = to.stat().st_size
        if came != length:
            raise UnavailableError(
                f"{self.label}: {came} of {length} bytes of '{key}' came; try again"
            )

    def head(self, key: str) -> tuple[int, int]:
        with self._told(f"look at '{key}'"):
            found = list(self._api.get_bucket_paths_info(self._bucket, [key]))
        if not found:
            raise NotFoundError(f"{self.label} has no object '{key}'")
        return found[0].size, _written_ms(found[0])

    def remove(self, key: str) -> None:
        self._seen.pop(key, None)
        try:
            with self._told(f"remove '{key}'"):
                self._api.batch_bucket_files(self._bucket, delete=[key])
        except (InvalidError, NotFoundError):
            # What is not there cannot be removed, says the Hub.
            if list(self._api.get_bucket_paths_info(self._bucket, [key])):
                raise

    def list(self, prefix: str, after: str, limit: int) -> list[tuple[str, int, int]]:
        folder = prefix.rpartition("/")[0]
        found: list[tuple[str, int, int]] = []
        try:
            with self._told(f"list '{prefix}'"):
                for entry in self._api.list_bucket_tree(
                    self._bucket, folder or None, recursive=True
                ):
                    path = entry.path
                    wanted = path.startswith(prefix) and path.encode() > after.encode()
                    if entry.type == "file" and wanted:
                        found.append((path, entry.size, _written_ms(entry)))
        except NotFoundError:
            with self._told(f"list '{prefix}'"):
                self._api.bucket_info(self._bucket)
            return []
        return sorted(found, key=lambda entry: entry[0].encode())[:limit]

    def now_ms(self) -> int:
        with self._told("ask for the time"):
            url = f"{self._api.endpoint}/api/buckets/{self._bucket}"
            headers = self._hub.utils.build_hf_headers(token=self._api.token)
            answer = self._hub.get_session().get(url, headers=headers)
            self._hub.utils.hf_raise_for_status(answer)
        date = answer.headers.get("Date")
        return int(parsedate_to_datetime(date).timestamp() * 1000) if date else super().now_ms()

    @contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        """What the Hub's client raises, as what wisp's callers act on."""
        try:
            yield
        except (NotFoundError, UnavailableError):
            raise
        except Exception as error:
            raise self._translated(error, f"{self.label}: cannot {doing}") from error

    def _translated(self, error: Exception, what: str) -> Exception:
        errors = self._hub.errors
        if isinstance(error, errors.EntryNotFoundError):
            return NotFoundError(f"{what}: there is no such object")
        status = _status_of(error)
        gone = (errors.BucketNotFoundError, errors.RepositoryNotFoundError)
        if isinstance(error, gone) or (status == 404 and isinstance(error, ConnectionError)):
            return NotFoundError(
                f"{what}: there is no such bucket, or the token may not see it; create it with "
                f"`hf buckets create {self._bucket}`, or check the address and HF_TOKEN"
            )
        if status in (401, 403) or isinstance(error, errors.LocalTokenNotFoundError):
            return DeniedError(
                f"{what}: {_first_line(error)}; set HF_TOKEN, or log in with `hf auth login`, with "
                "a token that may read this bucket, and write it for publishing"
            )
        if isinstance(error, errors.BucketBatchError):
            return InvalidError(f"{what}: {_first_line(error)}")
        if status is not None and 400 <= status < 500 and status not in (408, 409, 425, 429):
            return InvalidError(f"{what}: {_first_line(error)}")
        if isinstance(error, (TypeError, AttributeError, ImportError)):
            return error
        # Of what is left, down to a connection that broke inside hf_xet, all may pass.
        return UnavailableError(f"{what}: {_first_line(error)}; try again")


def _remove(folder: Path, owner: int) -> None:
    """Not by a child that was forked while its parent uses the folder."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _status_of(error: Exception) -> int | None:
    """Of the answer behind it; hf_xet, which fetches tokens by itself, has it in its words only."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    told = re.search(r"HTTP status client error \((\d{3})", str(error)) if status is None else None
    return int(told[1]) if told else status


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _poll_seconds() -> float:
    """Ten, or WISP_HUB_POLL, as the C++ side reads it."""
    text = os.environ.get("WISP_HUB_POLL", "")
    return float(text) if text.isdecimal() and 1 <= int(text) <= 60 else 10.0


def _written_ms(entry: Any) -> int:
    when = entry.uploaded_at or getattr(entry, "mtime", None)
    return 0 if when is None else int(when.timestamp() * 1000)
