"""Calls of the shared log (docs/protocol.md, section 8)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import errors, wire
from .calls import Busy, Calls
from .wire import of_bytes, of_text, u8, u32, u64

TO_HOST = 22
TO_CLIENT = 23
#: What one read returns at most, unless a single entry is larger.
READ_BYTES_MAX = 1 << 20
#: The longest that a read waits, in seconds.
WAIT_MAX = 30.0
#: What becomes of appends when the hosts' disk budget is reached.
CLEANUPS = {"refuse": 0, "drop-oldest": 1}

_BUSY, _UNKNOWN, _MALFORMED, _NOT_GRANTED = 1, 2, 3, 20
_REFUSALS: dict[int, tuple[type[errors.LogError], str]] = {
    4: (errors.NoSuchLog, "there is no log {name}"),
    5: (errors.Exists, "there is a log {name} already"),
    6: (errors.Sealed, "the log {name} is sealed at {at}"),
    7: (errors.Moved, "the tail of {name} is {at}, and not where the append expects it"),
    8: (errors.Trimmed, "entries of {name} below {at} are gone: resume there"),
    9: (errors.BeyondTail, "the log {name} ends at {at}"),
    10: (errors.Full, "no room for {name}: {at} bytes are free where it would live"),
    11: (errors.TooLarge, "one append may hold 1 MiB, each entry counted with 8 bytes more; nothing was appended"),
    12: (errors.Unsupported, "the engine of the cluster's log (log.engine of the cluster file) does not do this"),
    14: (errors.DiskFull, "the disk is full: nothing was done"),
    15: (errors.OverBudget, "nothing was appended to {name}: the host's logs hold {at} bytes and have reached log.disk_bytes"),
    13: (errors.Unarchived, "nothing is appended to {name} while {at} bytes of what was trimmed wait for the archive"),
}


@dataclass(frozen=True)
class LogStat:
    """How far a log goes."""

    name: str
    #: The first position that is left.
    first: int
    #: The position of the next entry.
    tail: int
    #: What its entries cost, in bytes.
    bytes: int
    #: What they may cost.
    retain_bytes: int
    #: How long they are retained, in milliseconds; 0: for ever.
    retain_ms: int
    sealed: bool


@dataclass(frozen=True)
class LogEntries:
    """Entries that were read, one position after the other."""

    first: int
    tail: int
    #: The tail is final.
    sealed: bool
    entries: list[bytes]

    @property
    def next(self) -> int:
        """Where to read on."""
        return self.first + len(self.entries)


@dataclass(frozen=True)
class Part:
    """Entries for one log; nothing is appended unless the first one gets the position `expect`."""

    name: str
    entries: Sequence[bytes]
    expect: int | None = None


def call(identifier: int, request: bytes) -> bytes:
    """The message of a call."""
    return bytes([TO_HOST, 1]) + u64(identifier) + request


def create_request(name: str, retain_bytes: int, retain_ms: int, cleanup: str) -> bytes:
    return u8(1) + of_text(name) + u64(retain_bytes) + u64(retain_ms) + u64(0) + u8(1) + u8(CLEANUPS[cleanup]) + u8(1) + u64(0)


def append_request(parts: Iterable[Part]) -> bytes:
    def encoded(part: Part) -> bytes:
        expect = None if part.expect is None else u64(part.expect)
        return of_text(part.name) + wire.option(expect) + of_bytes(wire.rows(part.entries))

    return u8(2) + wire.list_of(encoded(part) for part in parts) + wire.option(None)


def trim_request(name: str, before: int) -> bytes:
    return u8(3) + of_text(name) + u64(before)


def seal_request(name: str) -> bytes:
    return u8(4) + of_text(name)


def delete_request(name: str) -> bytes:
    return u8(5) + of_text(name)


def read_request(name: str, start: int, entries_max: int, bytes_max: int, wait_ms: int) -> bytes:
    return u8(6) + of_text(name) + u64(start) + u32(entries_max) + u32(bytes_max) + u32(wait_ms)


def stat_request(name: str) -> bytes:
    return u8(7) + of_text(name)


def list_request(after: str, limit: int) -> bytes:
    return u8(8) + of_text(after) + u32(limit)


def _read_stat(reader: wire.Reader) -> LogStat:
    numbers = (reader.text(), reader.u64(), reader.u64(), reader.u64(), reader.u64(), reader.u64())
    return LogStat(*numbers, sealed=reader.u8() != 0)


def _read_entries(reader: wire.Reader) -> LogEntries:
    first, after, tail, sealed = reader.u64(), reader.u64(), reader.u64(), reader.u8() != 0
    rows, entries = wire.Reader(reader.bytes()), []
    while rows.left:
        entries.append(rows.bytes())
    if after != first + len(entries):
        raise wire.Malformed(f"{len(entries)} entries from {first} to {after}")
    return LogEntries(first, tail, sealed, entries)


def read_answer(reader: wire.Reader) -> None | list[int] | LogEntries | list[LogStat]:
    """What an answer says; refusals are raised."""
    tag = reader.u8()
    if tag == 0:
        return None
    if tag == 1:
        return reader.list(wire.Reader.u64)
    if tag == 2:
        return _read_entries(reader)
    if tag == 3:
        return reader.list(_read_stat)
    if tag != 4:
        raise wire.Malformed(f"an answer of kind {tag}")
    why, name, at = reader.u8(), reader.text(), reader.u64()
    if why == _BUSY:
        raise Busy(errors.Busy("busy, not executed: too much is waiting; try again later"))
    if why == _UNKNOWN:
        raise errors.MaybeExecuted("the host lost track of the call; it may have been executed")
    if why == _NOT_GRANTED:
        raise errors.NotGranted(f"not granted: nothing was done to {name}" if name else "not granted: nothing was done")
    if why in _REFUSALS:
        kind, text = _REFUSALS[why]
        raise kind(name, at, text.format(name=name, at=at))
    raise errors.Refused("the call was refused and not executed: it is malformed")


class Log:
    """The shared log.

    Appends that are in flight at once are appended in the order of the calls, as long as their connection is open and the host is
    not too busy to take one of them.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def create(self, name: str, retain_bytes: int = 0, retain_ms: int = 0, cleanup: str = "refuse") -> None:
        """Makes a log that holds so many bytes (0: no limit but the hosts' disk budget), and entries for so long (0: for ever).

        When that budget is reached, appends are refused; with `cleanup="drop-oldest"` the oldest entries go instead.
        """
        await self._ask(create_request(name, retain_bytes, retain_ms, cleanup), type(None))

    async def append(self, name: str, entries: Sequence[bytes], expect: int | None = None) -> int:
        """Appends entries, all or nothing, and returns the position of the first."""
        firsts = await self.append_to_all([Part(name, entries, expect)])
        return firsts[0]

    async def append_to_all(self, parts: Sequence[Part]) -> list[int]:
        """Appends to several logs: everything or nothing. Returns the position of the first entry in each."""
        firsts: list[int] = await self._ask(append_request(parts), list)
        if len(firsts) != len(parts):
            raise errors.Unreadable(f"{len(firsts)} positions for {len(parts)} logs")
        return firsts

    async def read(
        self, name: str, start: int, entries_max: int = 1_000, wait: float = 0.0, bytes_max: int = READ_BYTES_MAX
    ) -> LogEntries:
        """Reads entries from `start` on; where there is none yet, waits for one up to `wait` seconds."""
        wait = min(wait, WAIT_MAX)
        request = read_request(name, start, entries_max, bytes_max, int(wait * 1000))
        entries: LogEntries = await self._ask(request, LogEntries, may_repeat=True, wait=wait)
        return entries

    async def tail(self, name: str, start: int, follow: bool = True) -> AsyncIterator[tuple[int, bytes]]:
        """Entries with their positions, from `start` on. Ends at the tail of a sealed log, or of any unless it is to `follow`.

        One page is held at a time: a reader that is slow is not overrun. `Trimmed` says where one that is too slow may resume.
        """
        while True:
            try:
                page = await self.read(name, start, wait=WAIT_MAX / 2 if follow else 0.0)
            except errors.TimedOut:
                if follow:
                    continue
                raise
            for entry in page.entries:
                yield start, entry
                start += 1
            if start >= page.tail and (page.sealed or not follow):
                return

    async def trim(self, name: str, before: int) -> None:
        """Drops entries at positions below `before`."""
        await self._ask(trim_request(name, before), type(None))

    async def seal(self, name: str) -> None:
        """Lets nothing be appended any more."""
        await self._ask(seal_request(name), type(None))

    async def delete(self, name: str) -> None:
        """Drops a log with its entries."""
        await self._ask(delete_request(name), type(None))

    async def stat(self, name: str) -> LogStat:
        """How far a log goes."""
        stats: list[LogStat] = await self._ask(stat_request(name), list, may_repeat=True)
        return stats[0]

    async def list(self, after: str = "", limit: int = 1_000) -> list[LogStat]:
        """Logs by name, those after `after`."""
        stats: list[LogStat] = await self._ask(list_request(after, limit), list, may_repeat=True)
        return stats

    async def _ask(self, request: bytes, kind: type[Any], may_repeat: bool = False, wait: float = 0.0) -> Any:
        def message(identifier: int) -> bytes:
            return call(identifier, request)

        answer = await self._calls.call(
            message, read_answer, may_repeat=may_repeat, size=len(request), wait=wait
        )
        if not isinstance(answer, kind):
            raise errors.Unreadable(f"an answer of another kind: {type(answer).__name__}")
        return answer


def by_log(entries: Mapping[str, Sequence[bytes]]) -> list[Part]:
    """Parts for `Log.append_to_all` from entries by log."""
    return [Part(name, of_it) for name, of_it in entries.items()]
