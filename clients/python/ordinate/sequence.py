"""Calls of the sequence (docs/protocol.md, section 7)."""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import dataclass

from . import errors, wire
from .calls import Busy, Calls
from .wire import of_bytes, of_text, u64

TO_HOST = 20
TO_CLIENT = 21


@dataclass(frozen=True)
class SequencePosition:
    """A number in each space, in the order asked, and one gsn over all."""

    numbers: list[int]
    gsn: int


def next_message(identifier: int, spaces: Several[str], label: bytes) -> bytes:
    """The message of a call."""
    return bytes([TO_HOST, 1]) + u64(identifier) + wire.list_of(of_text(name) for name in spaces) + of_bytes(label)


def read_numbered(reader: wire.Reader) -> SequencePosition:
    """What an answer says; what is none is raised."""
    status = reader.u8()
    position = SequencePosition(reader.list(wire.Reader.u64), reader.u64())
    if status == 0:
        return position
    if status == 1:
        raise Busy(errors.Busy("busy, not executed: too much is waiting; try again later"))
    if status == 2:
        raise errors.MaybeExecuted("a position may have been given; asking again takes another one")
    if status == 4:
        raise errors.DiskFull("the disk is full: nothing was done")
    if status == 5:
        raise errors.NotGranted("not granted: nothing was done")
    raise errors.Refused("no space or an unknown one is named, or the label is too long")


class Sequence:
    """The sequence: contiguous numbers, in one space or in several at once."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def next(self, spaces: Several[str], label: bytes = b"") -> SequencePosition:
        """The next number in each space."""

        def message(identifier: int) -> bytes:
            return next_message(identifier, spaces, label)

        position: SequencePosition = await self._calls.call(message, read_numbered, may_repeat=False)
        return position
