"""Thrift's compact protocol, in which Parquet's footers and headers are: read, changed, written.

A struct is a list of [number, type, value], so that a field may be there twice, or be of any type.
"""

import random
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)
NUMBERS = (0, -1, 1, 2, 3, 7, 127, 10**6, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1)


@dataclass
class Struct:
    """A struct's fields: number, type, value."""

    items: list[list[Any]]


@dataclass
class Items:
    """A list of values of one type."""

    kind: int
    items: list[Any]


def field(struct: Struct, number: int) -> Any:
    """The value of a field; None where it is not there."""
    return next((value for found, _, value in struct.items if found == number), None)


def set_field(struct: Struct, number: int, value: Any) -> None:
    """Change a field, if it is there."""
    for item in struct.items:
        if item[0] == number:
            item[2] = value


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, n: int) -> bytes:
        self.at += n
        return self.data[self.at - n : self.at]

    def varint(self) -> int:
        value = shift = 0
        while (byte := self.take(1)[0]) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def value(self, kind: int) -> Any:
        if kind in _INTEGERS:
            number = self.varint()
            return number >> 1 ^ -(number & 1)
        if kind == _BINARY:
            return self.take(self.varint())
        if kind in (_LIST, _SET):
            head = self.take(1)[0]
            count = head >> 4 if head >> 4 < 15 else self.varint()
            inner = head & 15
            return Items(inner, [self.element(inner) for _ in range(count)])
        if kind == _STRUCT:
            return self.struct()
        return self.take({_BYTE: 1, _DOUBLE: 8}.get(kind, 0))

    def element(self, kind: int) -> Any:
        return self.take(1) if kind in (_TRUE, _FALSE) else self.value(kind)

    def struct(self) -> Struct:
        fields: list[list[Any]] = []
        number = 0
        while head := self.take(1)[0]:
            number = number + (head >> 4) if head >> 4 else self.value(4)
            fields.append([number, head & 15, self.value(head & 15)])
        return Struct(fields)


def parse(data: bytes, at: int) -> tuple[Struct, int]:
    """The struct that begins at a place, and where it ends."""
    reader = _Reader(data, at)
    return reader.struct(), reader.at


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def dump(value: Any, kind: int = _STRUCT) -> bytes:
    """The bytes of a value."""
    if isinstance(value, int):
        return _varint(value << 1 ^ value >> 63)
    if isinstance(value, bytes):
        return (_varint(len(value)) if kind == _BINARY else b"") + value
    if isinstance(value, Items):
        n = len(value.items)
        head = bytes([n << 4 | value.kind]) if n < 15 else bytes([0xF0 | value.kind]) + _varint(n)
        return head + b"".join(dump(item, value.kind) for item in value.items)
    written, last = b"", 0
    for number, inner, content in value.items:
        step = number - last
        written += bytes([step << 4 | inner]) if 0 < step < 16 else bytes([inner]) + dump(number)
        written += dump(content, inner)
        last = number
    return written + b"\0"


def _places(value: Any) -> list[tuple[list[Any], int, int]]:
    """Every list that a value is in, where it is in it, and its type."""
    found: list[tuple[list[Any], int, int]] = []
    if isinstance(value, Struct):
        for item in value.items:
            found += [(item, 2, item[1]), *_places(item[2])]
    elif isinstance(value, Items):
        for at, inner in enumerate(value.items):
            found += [(value.items, at, value.kind), *_places(inner)]
    return found


def mutate(draw: random.Random, struct: Struct) -> None:
    """Change a number, a text, a list, a struct, or a type in it."""
    inside, at, kind = draw.choice(_places(struct))
    value = inside[at]
    if isinstance(value, int):
        near = (value + 1, value - 1, value * 2, value // 2, -value)
        inside[at] = draw.choice((*NUMBERS, *near))
    elif isinstance(value, Items):
        match draw.randrange(5) if value.items else 9:
            case 0:
                del value.items[draw.randrange(len(value.items))]
            case 1:
                value.items.insert(0, deepcopy(draw.choice(value.items)))
            case 2:
                value.items.clear()
            case 3:
                value.items *= draw.choice((2, 100))
            case _:
                draw.shuffle(value.items)
    elif isinstance(value, Struct):
        match draw.randrange(3) if value.items else 9:
            case 0:
                del value.items[draw.randrange(len(value.items))]
            case 1:
                value.items.append(deepcopy(draw.choice(value.items)))
            case _ if value.items:
                draw.choice(value.items)[0] = draw.randrange(1, 20)
    elif kind == _BINARY:
        texts = (b"", b"\xff\xfe", b"\0", b"x" * 70_000, b"a.b", b"list", value[::-1], value * 2)
        inside[at] = draw.choice(texts)
    elif kind in (_TRUE, _FALSE) and len(inside) == 3:
        inside[1] = 3 - kind
