"""Where runs lie: addresses, and stores written in Python.

Wherever wisp asks for a run it takes an address (`"s3://bucket/prefix"`,
`"hf://buckets/namespace/name/prefix"`, `"file:///path"`, a path), or a `Store`: any object with the
methods below, for storage that wisp does not speak itself.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol

from ._native import Location, hub_access, locate, open_location
from .errors import InvalidError, NotFoundError

__all__ = ["At", "FsspecStore", "Location", "RunAddress", "Store", "location"]


class Store(ABC):
    """The interface of a store; deriving from it is a convenience, not a must.

    Keys are relative to the store's root: parts joined by single "/". All methods may be called
    from any thread. put, create and remove are atomic, and seen by every later read. Raise
    NotFoundError (or FileNotFoundError) for an object that is not there, DeniedError
    (PermissionError), UnavailableError (any other OSError; wisp tries again). Any other exception
    ends the call under way and comes out of it.
    """

    #: For messages; must not hold a secret.
    label: str = "a store"
    #: True only if create() lets exactly one of several racing callers win, from any machine.
    creates_exclusively: bool = False
    #: For `wisp.doctor`: how the store is reached, and how to come by a better way.
    way: str = ""
    better: str = ""
    #: Followers ask no more often than every so many seconds.
    poll: float = 0.0
    #: Requests are counted there: wisp makes few, and large ones. A store may also have
    #: `put_file(key, path)`, which is then called instead of put() for what is large.
    few_requests: bool = False

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Creates or replaces."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> bool:
        """Creates and returns True, or leaves what is there alone and returns False."""

    @abstractmethod
    def read(self, key: str, offset: int, size: int) -> bytes:
        """`size` bytes from `offset` on; fewer only where the object ends."""

    @abstractmethod
    def head(self, key: str) -> tuple[int, int]:
        """(size in bytes, time of last change in milliseconds since 1970, 0 if unknown)."""

    @abstractmethod
    def remove(self, key: str) -> None:
        """An object that is not there is as good as removed."""

    @abstractmethod
    def list(self, prefix: str, after: str, limit: int) -> Iterable[tuple[str, int, int]]:
        """Up to `limit` (key, size, modified_ms) that start with `prefix` and come after `after`.

        In ascending order of the keys' UTF-8 bytes.
        """

    def now_ms(self) -> int:
        """The store's own clock; this machine's if it has none."""
        return time.time_ns() // 1_000_000


class StoreMethods(Protocol):
    """What a store must have, whatever it derives from; `Store` says what each means."""

    @property
    def label(self) -> str: ...
    @property
    def creates_exclusively(self) -> bool: ...
    def put(self, key: str, data: bytes, /) -> None: ...
    def create(self, key: str, data: bytes, /) -> bool: ...
    def read(self, key: str, offset: int, size: int, /) -> bytes: ...
    def head(self, key: str, /) -> tuple[int, int]: ...
    def remove(self, key: str, /) -> None: ...
    def list(self, prefix: str, after: str, limit: int, /) -> Iterable[tuple[str, int, int]]: ...
    def now_ms(self) -> int: ...


class At:
    """A prefix inside a store written in Python: `At(store, "runs/a")`."""

    def __init__(self, store: StoreMethods, prefix: str = "") -> None:
        self.store = store
        self.prefix = prefix


#: What every call on a run takes.
RunAddress = str | os.PathLike[str] | Location | At | StoreMethods


def location(run: RunAddress) -> Location:
    """The place that an address, a path, a store, or At(store, prefix) names."""
    if isinstance(run, Location):
        return run
    if isinstance(run, str) and run[:5].lower() == "hf://":
        return _hub_location("hf://" + run[5:])
    if isinstance(run, (str, os.PathLike)):
        return open_location(os.fspath(run))
    place = run if isinstance(run, At) else At(run)
    wanted = ("put", "create", "read", "head", "remove", "list", "now_ms")
    missing = [m for m in wanted if not callable(getattr(place.store, m, None))]
    missing += [a for a in ("label", "creates_exclusively") if not hasattr(place.store, a)]
    if missing:
        raise InvalidError(
            f"a run is an address, a path, or a store; {type(place.store).__name__} has no "
            + ", ".join(missing)
        )
    return locate(place.store, place.prefix)


def _hub_location(url: str) -> Location:
    """Through the Hub's S3 gateway where its keys are at hand, else by the Hub's own API."""
    bucket, prefix, gateway, lacking = hub_access(url)
    if gateway:
        return open_location(url)
    from .hub import HubStore

    return locate(HubStore(bucket, better=lacking), prefix)


def _modified_ms(info: dict[str, Any]) -> int:
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        when = info.get(name)
        if isinstance(when, datetime):
            return int(when.timestamp() * 1000)
        if isinstance(when, (int, float)):
            return int(when * 1000)
    return 0


class FsspecStore(Store):
    """Any file system of fsspec as a store: `FsspecStore(fsspec.filesystem("gcs"), "bucket/path")`.

    Few of them can create a file only where there is none, for all who race, so unless you know
    better (`creates_exclusively=True`) a run here has one writer at a time: start it with
    `wisp.init(run, single_writer=True)`. `wisp.doctor` finds out what a store really does.
    """

    def __init__(self, fs: Any, root: str, *, creates_exclusively: bool = False) -> None:
        self._fs = fs
        self._root = fs._strip_protocol(root).rstrip("/")
        self.creates_exclusively = creates_exclusively
        protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
        self.label = f"{protocol}://{self._root}"
        # Directory listings that fsspec remembers would hide what others wrote.
        fs.use_listings_cache = False

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._fs.pipe_file(path, data)

    def create(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        if self._fs.exists(path):
            return False
        try:
            self._fs.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        except (NotImplementedError, TypeError):
            self._fs.pipe_file(path, data)
        return True

    def read(self, key: str, offset: int, size: int) -> bytes:
        path = self._path(key)
        length = self._info(path)["size"]
        if offset >= length or size == 0:
            return b""
        return bytes(self._fs.cat_file(path, start=offset, end=min(offset + size, length)))

    def _info(self, path: str) -> dict[str, Any]:
        self._fs.invalidate_cache(path)
        info: dict[str, Any] = self._fs.info(path)
        if info.get("type") == "directory":
            raise NotFoundError(f"there is no object '{path}', only a folder")
        return info

    def head(self, key: str) -> tuple[int, int]:
        info = self._info(self._path(key))
        return int(info["size"]), _modified_ms(info)

    def remove(self, key: str) -> None:
        try:
            self._info(self._path(key))
            self._fs.rm_file(self._path(key))
        except (FileNotFoundError, NotFoundError):
            pass

    def list(self, prefix: str, after: str, limit: int) -> list[tuple[str, int, int]]:
        folder = self._path(prefix.rpartition("/")[0]).rstrip("/")
        self._fs.invalidate_cache()
        found = self._fs.find(folder, detail=True) if self._fs.isdir(folder) else {}
        start = len(self._root) + 1
        keys = sorted(
            (name.encode(), path)
            for path in found
            if (name := path[start:]).startswith(prefix) and name.encode() > after.encode()
        )
        return [
            (name.decode(), int(found[path]["size"]), _modified_ms(found[path]))
            for name, path in keys[:limit]
        ]
