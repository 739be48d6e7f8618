"""The native protocol's primitives, frames and prefaces (docs/protocol.md, section 1)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

VERSION = 1
PREFACE_BYTES = 16
FRAME_HEADER_BYTES = 8
#: A longer frame of a host closes the connection.
FRAME_BYTES_MAX = 64 << 20
#: What a version 0 of the preface may say.
REFUSAL_BYTES_MAX = 1024


class Malformed(Exception):
    """Bytes that are not what they should be."""


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli)."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def preface(version: int, token: str = "") -> bytes:
    """The 16 bytes that open a connection, and a token behind them if there is one."""
    secret = token.encode()
    return b"ORDINATE" + struct.pack("<II", version, len(secret)) + secret


def read_preface(data: bytes) -> tuple[int, int]:
    """The version that a preface names, and its last word."""
    if len(data) != PREFACE_BYTES or data[:8] != b"ORDINATE":
        raise Malformed("not the native protocol")
    version, last = struct.unpack("<II", data[8:])
    return version, last


def begins_as_preface(header: bytes) -> bool:
    """Where a frame would begin, a host says that it closes the connection, and why."""
    return header == b"ORDINATE"


def frame(messages: Iterable[bytes]) -> bytes:
    """Messages as one frame."""
    body = b"".join(u32(len(message)) + message for message in messages)
    return struct.pack("<II", len(body), crc32c(body)) + body


def read_frame_header(data: bytes) -> tuple[int, int]:
    """The length and the checksum of the body that follows."""
    length, checksum = struct.unpack("<II", data)
    if length > FRAME_BYTES_MAX:
        raise Malformed(f"a frame of {length} bytes")
    return length, checksum


def read_frame_body(body: bytes, checksum: int) -> list[bytes]:
    """The messages of a frame's body."""
    if crc32c(body) != checksum:
        raise Malformed("the frame's checksum does not match")
    reader, messages = Reader(body), []
    while reader.left:
        messages.append(reader.bytes())
    return messages


def u8(value: int) -> bytes:
    return struct.pack("<B", value)


def u16(value: int) -> bytes:
    return struct.pack("<H", value)


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def i64(value: int) -> bytes:
    return struct.pack("<q", value)


def of_bytes(value: bytes) -> bytes:
    return u32(len(value)) + value


def of_text(value: str) -> bytes:
    return of_bytes(value.encode())


def option(value: bytes | None) -> bytes:
    """An option whose value is encoded already."""
    return b"\0" if value is None else b"\1" + value


def list_of(items: Iterable[bytes]) -> bytes:
    """A list whose items are encoded already."""
    items = list(items)
    return u32(len(items)) + b"".join(items)


def rows(entries: Iterable[bytes]) -> bytes:
    """Entries of a log in one piece."""
    return b"".join(of_bytes(entry) for entry in entries)


class Reader:
    """What is left of a message."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, length: int) -> bytes:
        if length > self.left:
            raise Malformed(f"{length} bytes where {self.left} are left")
        begin = self._at
        self._at += length
        return self._data[begin : self._at]

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int(struct.unpack("<H", self.take(2))[0])

    def u32(self) -> int:
        return int(struct.unpack("<I", self.take(4))[0])

    def u64(self) -> int:
        return int(struct.unpack("<Q", self.take(8))[0])

    def i64(self) -> int:
        return int(struct.unpack("<q", self.take(8))[0])

    def bytes(self) -> bytes:
        return self.take(self.u32())

    def text(self) -> str:
        try:
            return self.bytes().decode()
        except UnicodeDecodeError as error:
            raise Malformed(str(error)) from error

    def option(self, item: Callable[[Reader], T]) -> T | None:
        tag = self.u8()
        if tag > 1:
            raise Malformed(f"{tag} is no option")
        return item(self) if tag else None

    def list(self, item: Callable[[Reader], T]) -> list[T]:
        count = self.u32()
        if count > self.left:
            raise Malformed(f"a list of {count} items in {self.left} bytes")
        return [item(self) for _ in range(count)]
