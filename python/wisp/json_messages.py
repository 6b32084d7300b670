"""Dataclasses as JSON messages: written by encode(), read back and checked field by field.

A message is an object of the dataclass' fields and `message`, the name of its class. Fields are
numbers, texts, flags, other dataclasses, and lists, tuples, dicts and optionals of those. Fields
that the reader does not know are passed over, so that a newer writer may say more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["decode", "decode_any", "encode"]

T = TypeVar("T")
_Reader = Callable[[object], object]


def encode(message: DataclassInstance) -> bytes:
    """A message in one line, without the end of it."""
    told = {"message": type(message).__name__, **_told(message)}
    return json.dumps(told, default=_told).encode()


def _told(message: DataclassInstance) -> dict[str, object]:
    """As it is: asdict() would copy every entry of every list, one by one."""
    return {field.name: getattr(message, field.name) for field in fields(message)}


def decode(data: bytes, kind: type[T]) -> T:
    """The message in `data`, which must be of this kind; ValueError if it is not."""
    return cast(T, decode_any(data, kind))


def decode_any(data: bytes, *kinds: type) -> Any:
    """The message in `data`, of one of the kinds; ValueError if it is none of them.

    No type says "one of these" to the checker; callers name their union.
    """
    told = json.loads(data)
    name = told.get("message") if isinstance(told, dict) else None
    for known in kinds:
        if known.__name__ == name:
            return _dataclass_reader(known)(told)
    raise ValueError(f"a message {name!r}, where {[k.__name__ for k in kinds]} are known")


@cache
def _reader(kind: type) -> _Reader:
    """A function that checks a value from JSON and makes it what the annotation says."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _dataclass_reader(kind)
    if origin in (Union, UnionType):
        return _optional_reader(arguments)
    if origin is tuple and arguments[-1:] != (...,):
        return _entry_reader(tuple(_reader(argument) for argument in arguments))
    if origin in (tuple, list):
        item = _reader(arguments[0])
        return lambda value: origin([item(one) for one in _checked(value, list)])
    if origin is dict:
        item = _reader(arguments[1])
        return lambda value: {key: item(one) for key, one in _checked(value, dict).items()}
    if kind is float:
        return lambda value: float(value if type(value) is int else _checked(value, float))
    return lambda value: _checked(value, kind)


def _checked(value: object, kind: type[T]) -> T:
    if type(value) is not kind:
        raise ValueError(f"{type(value).__name__} in a message, where {kind.__name__} belongs")
    return value


def _optional_reader(arguments: tuple[type, ...]) -> _Reader:
    (inner,) = [_reader(argument) for argument in arguments if argument is not NoneType]
    return lambda value: None if value is None else inner(value)


def _entry_reader(items: tuple[_Reader, ...]) -> _Reader:
    def read(value: object) -> tuple[object, ...]:
        told: list[object] = _checked(value, list)
        if len(told) != len(items):
            raise ValueError(f"{len(told)} values in a message, where {len(items)} belong")
        return tuple(item(one) for item, one in zip(items, told, strict=True))

    return read


@cache
def _dataclass_reader(kind: type) -> _Reader:
    hints = get_type_hints(kind)
    readers = [(f.name, _reader(hints[f.name]), _is_required(f)) for f in fields(kind)]

    def read(value: object) -> object:
        told: dict[str, object] = _checked(value, dict)
        missing = [name for name, _, required in readers if required and name not in told]
        if missing:
            raise ValueError(f"a message {kind.__name__} without {', '.join(missing)}")
        return kind(**{name: item(told[name]) for name, item, _ in readers if name in told})

    return read


def _is_required(field: Field[object]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
