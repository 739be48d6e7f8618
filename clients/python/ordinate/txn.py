"""Transactions (docs/protocol.md, section 9; docs/transactions.md)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from . import errors, wire
from .calls import Busy, Calls
from .wire import list_of, of_bytes, option, u8, u32, u64

T = TypeVar("T")

TO_HOST = 24
TO_CLIENT = 25

_READ_ONLY, _ONE_SHOT, _BEGIN, _READ_WITHIN, _COMMIT, _GIVE_UP, _FENCE, _STATUS = range(1, 9)
_READ_ROWS, _COMMITTED, _NOT_MET, _BEGUN, _ROWS_WITHIN, _FENCED, _FATE, _FAILED = range(1, 9)
_BUSY, _UNKNOWN, _NOT_GRANTED = 2, 3, 11
_FAILURES: dict[int, tuple[type[errors.TxnError], str]] = {
    1: (errors.Aborted, "aborted in favour of an older transaction: nothing was executed, try again"),
    2: (errors.TxnBusy, "busy: nothing was executed, try again later"),
    3: (errors.CommitUnknown, "the commit may have been executed, or may still be: ask for its status"),
    4: (errors.TxnMalformed, "malformed, or beyond a limit: nothing was executed"),
    5: (errors.Collected, "the versions of that time are not retained any more: nothing was executed"),
    6: (errors.FromTheFuture, "the timestamp or token is in the future: nothing was executed"),
    7: (errors.NoClock, "the host's clock cannot be relied on: nothing was executed"),
    8: (errors.TxnDiskFull, "the disks are full: nothing was executed"),
    9: (errors.NoTransaction, "there is no such transaction: it has ended, or was idle for too long; nothing was executed"),
    10: (errors.Unavailable, "a shard cannot be reached: nothing was executed, try again"),
}
#: An attempt that ends so may be made again.
_ATTEMPT_ENDS = (errors.Aborted, errors.TxnBusy, errors.NoClock, errors.TxnDiskFull, errors.NoTransaction, errors.Unavailable)
#: The first pause before a transaction is tried again; twice as long after each attempt.
_PAUSE = 0.0005
_PAUSE_MAX = 0.05
#: What a transaction may write, in bytes of keys and values.
_WRITTEN_BYTES_MAX = 2 << 20
#: How often the fate of a commit is asked for whose host is gone.
_ASK_FATE_EVERY = 0.2
#: What no log has after so long was most likely never prepared: shards abort what a dead host began within a second.
_ASK_FATE_WITHIN = 5.0


@dataclass(frozen=True)
class TxnLevel:
    """How fresh a read-only transaction has to be."""

    name: str
    encoded: bytes

    @staticmethod
    def at(timestamp: int) -> TxnLevel:
        """The state at a timestamp."""
        return TxnLevel("at", u8(4) + u64(timestamp))

    @staticmethod
    def stale(seconds: float) -> TxnLevel:
        """A state that is at most so old."""
        return TxnLevel("stale", u8(5) + u64(round(seconds * 1_000_000)))


#: Sees all that was committed before it was asked.
STRICT = TxnLevel("strict", u8(1))
#: Sees what its session has seen, and each write that it conflicts with and that had ended before it was asked.
RSS = TxnLevel("rss", u8(2))
#: Sees what its session has seen.
PROCESS_ORDERED = TxnLevel("process-ordered", u8(3))


@dataclass(frozen=True)
class TxnRow:
    """A key as a read found it."""

    key: bytes
    #: None: there is no such key.
    value: bytes | None
    #: The commit that wrote or deleted it; 0 where neither is known, and of a transaction's own writes.
    version: int


@dataclass(frozen=True)
class Scanned:
    """What a scan found."""

    rows: list[TxnRow]
    #: Where to go on, if there may be more.
    next: bytes | None


@dataclass(frozen=True)
class ReadResult:
    """What a read-only transaction found."""

    #: Its position on the axis of commit timestamps.
    at: int
    rows: list[TxnRow]
    scans: list[Scanned]


@dataclass(frozen=True)
class OneShotResult:
    """What a one-shot came to."""

    #: The version of what was written; None: a condition does not hold, and nothing was written.
    committed: int | None
    #: What was read before; or what was to be read otherwise.
    rows: list[TxnRow]
    #: The first condition that does not hold.
    condition: int | None
    #: What the commit is called.
    id: str


@dataclass(frozen=True)
class Scan:
    """The keys of a range in their order: those that begin with `prefix`, or from `start` on and below `end`."""

    prefix: bytes | None = None
    start: bytes = b""
    end: bytes | None = None
    limit: int = 100

    def range(self) -> tuple[bytes, bytes | None]:
        """The first key, and the first one behind the range."""
        if self.prefix is None:
            return self.start, self.end
        stripped = self.prefix.rstrip(b"\xff")
        return self.prefix, stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None

    def contains(self, key: bytes) -> bool:
        """True if the key is in the range."""
        start, end = self.range()
        return key >= start and (end is None or key < end)


def _scan(scan: Scan) -> bytes:
    start, end = scan.range()
    return of_bytes(start) + option(None if end is None else of_bytes(end)) + u32(scan.limit)


def _write(item: tuple[bytes, bytes | None]) -> bytes:
    key, value = item
    return of_bytes(key) + option(None if value is None else of_bytes(value))


def _key(key: tuple[int, int] | None) -> bytes:
    return option(None if key is None else u64(key[0]) + u64(key[1]))


def _head(variant: int, identifier: int) -> bytes:
    return bytes([TO_HOST, variant]) + u64(identifier)


def _keys(keys: Iterable[bytes]) -> bytes:
    return list_of(of_bytes(key) for key in keys)


def _scans(scans: Iterable[Scan]) -> bytes:
    return list_of(_scan(scan) for scan in scans)


def _writes(writes: Mapping[bytes, bytes | None]) -> bytes:
    return list_of(_write(item) for item in sorted(writes.items()))


def read_only_message(identifier: int, token: int, level: TxnLevel, keys: Iterable[bytes], scans: Iterable[Scan]) -> bytes:
    """A read-only transaction."""
    return _head(_READ_ONLY, identifier) + u64(token) + level.encoded + _keys(keys) + _scans(scans)


def one_shot_message(
    identifier: int,
    token: int,
    key: tuple[int, int] | None,
    acknowledged: int,
    conditions: Mapping[bytes, int],
    writes: Mapping[bytes, bytes | None],
    reads: Iterable[bytes],
    otherwise: Iterable[bytes],
) -> bytes:
    """A one-shot transaction."""
    named = list_of(of_bytes(name) + u64(version) for name, version in conditions.items())
    head = _head(_ONE_SHOT, identifier) + u64(token) + _key(key) + u64(acknowledged)
    return head + named + _writes(writes) + _keys(reads) + _keys(otherwise)


def begin_message(identifier: int, token: int, priority: int | None) -> bytes:
    """The beginning of an interactive transaction."""
    return _head(_BEGIN, identifier) + u64(token) + option(None if priority is None else u64(priority))


def read_within_message(identifier: int, txn: int, keys: Iterable[bytes], scans: Iterable[Scan]) -> bytes:
    """A read within one."""
    return _head(_READ_WITHIN, identifier) + u64(txn) + _keys(keys) + _scans(scans)


def commit_message(
    identifier: int, txn: int, key: tuple[int, int] | None, acknowledged: int, writes: Mapping[bytes, bytes | None]
) -> bytes:
    """Its commit."""
    return _head(_COMMIT, identifier) + u64(txn) + _key(key) + u64(acknowledged) + _writes(writes)


def give_up_message(txn: int) -> bytes:
    """Its end without one; not answered."""
    return _head(_GIVE_UP, txn)


def fence_message(identifier: int, token: int) -> bytes:
    """A fence."""
    return _head(_FENCE, identifier) + u64(token)


def status_message(identifier: int, key: tuple[int, int]) -> bytes:
    """A question for a commit's fate."""
    return _head(_STATUS, identifier) + u64(key[0]) + u64(key[1])


def _row(reader: wire.Reader) -> TxnRow:
    return TxnRow(reader.bytes(), reader.option(wire.Reader.bytes), reader.u64())


def _scanned(reader: wire.Reader) -> Scanned:
    return Scanned(reader.list(_row), reader.option(wire.Reader.bytes))


def read_reply(reader: wire.Reader, variant: int) -> dict[str, Any]:
    """The fields of a reply behind its number; a failure is raised."""
    if variant == _READ_ROWS:
        return {"token": reader.u64(), "at": reader.u64(), "rows": reader.list(_row), "scans": reader.list(_scanned)}
    if variant == _COMMITTED:
        return {"token": reader.u64(), "at": reader.u64(), "rows": reader.list(_row)}
    if variant == _NOT_MET:
        return {"token": reader.u64(), "condition": reader.u32(), "rows": reader.list(_row)}
    if variant == _BEGUN:
        return {"priority": reader.u64()}
    if variant == _ROWS_WITHIN:
        return {"token": reader.u64(), "rows": reader.list(_row), "scans": reader.list(_scanned)}
    if variant == _FENCED:
        return {"token": reader.u64()}
    if variant == _FATE:
        return {"committed": reader.option(wire.Reader.u64)}
    if variant == _FAILED:
        why = reader.u8()
        if why == _NOT_GRANTED:
            raise errors.NotGranted("not granted: nothing was executed")
        kind, text = _FAILURES.get(why, (errors.TxnError, "the transaction failed"))
        raise kind(text)
    raise wire.Malformed(f"reply {variant} of transactions")


def _size(writes: Mapping[bytes, bytes | None]) -> int:
    """Bytes of what is written. More than a transaction may write is not sent."""
    size = sum(len(name) + len(value or b"") for name, value in writes.items())
    if size > _WRITTEN_BYTES_MAX:
        raise errors.TxnMalformed(f"not sent: bytes written: {size}/{_WRITTEN_BYTES_MAX}")
    return size


def commit_id(key: tuple[int, int]) -> str:
    """What a commit is called, as people write it."""
    return f"{key[0]:016x}-{key[1]}"


class Transaction:
    """One attempt at an interactive transaction: what it reads, nobody writes before it ends."""

    def __init__(self, session: TxnSession, number: int) -> None:
        self._session = session
        self.number = number
        self.writes: dict[bytes, bytes | None] = {}
        #: Why it cannot be committed any more.
        self.ended: errors.TxnError | None = None

    async def get(self, key: bytes) -> bytes | None:
        """What a key holds; None if there is no such key."""
        return (await self.rows([key]))[0].value

    async def rows(self, keys: Iterable[bytes]) -> list[TxnRow]:
        """What keys hold; those that this transaction has written have the version 0."""
        found = await self._read(list(keys), [])
        rows: list[TxnRow] = found["rows"]
        return [TxnRow(row.key, self.writes[row.key], 0) if row.key in self.writes else row for row in rows]

    async def scan(self, scan: Scan) -> Scanned:
        """The keys of a range, this transaction's own writes included. Nobody adds or removes one before it ends."""
        found: Scanned = (await self._read([], [scan]))["scans"][0]
        rows = {row.key: row for row in found.rows}
        for key, value in self.writes.items():
            if scan.contains(key) and (found.next is None or key < found.next):
                rows.pop(key, None)
                if value is not None:
                    rows[key] = TxnRow(key, value, 0)
        keys = sorted(rows)
        following = keys[scan.limit] if len(keys) > scan.limit else found.next
        return Scanned([rows[key] for key in keys[: scan.limit]], following)

    def put(self, key: bytes, value: bytes) -> None:
        """Sets a key when it commits."""
        self.writes[key] = value

    def delete(self, key: bytes) -> None:
        """Deletes a key when it commits."""
        self.writes[key] = None

    async def _read(self, keys: list[bytes], scans: list[Scan]) -> dict[str, Any]:
        if self.ended is not None:
            raise self.ended

        def message(identifier: int) -> bytes:
            return read_within_message(identifier, self.number, keys, scans)

        try:
            return await self._session.call(message, may_repeat=False)
        except errors.MaybeExecuted:
            # The host that played its client is gone, and the transaction with it.
            self.ended = errors.NoTransaction("the connection broke: the transaction is given up")
            raise self.ended from None
        except _ATTEMPT_ENDS as error:
            self.ended = error
            raise


class TxnSession:
    """A session: what it has seen, all its later transactions see, whatever their level and host."""

    def __init__(self, calls: Calls, timeout: float) -> None:
        self._calls = calls
        self._timeout = timeout
        #: Everything committed up to this timestamp is seen.
        self.token = 0
        self._name = secrets.randbits(64)
        self._next = 1
        self._open: set[int] = set()

    def _lost(self, key: tuple[int, int]) -> errors.CommitUnknown:
        """Nobody learns how a commit has ended: it may still be executed. The session goes on under another name, or shards would
        remember all that it commits from now on, and refuse it when that is too much."""
        if key[0] == self._name:
            self._name, self._next, self._open = secrets.randbits(64), 1, set()
        return errors.CommitUnknown("the commit may have been executed, or may still be", commit_id(key))

    def _answered(self, key: tuple[int, int]) -> None:
        if key[0] == self._name:
            self._open.discard(key[1])

    def session(self) -> TxnSession:
        """Another session over the same connection, which has seen nothing yet."""
        return TxnSession(self._calls, self._timeout)

    def absorb(self, token: int) -> None:
        """The session has seen what another one's token says."""
        self.token = max(self.token, token)

    async def call(
        self,
        message: Callable[[int], bytes],
        *,
        may_repeat: bool,
        has_effect: bool = False,
        busy_is_final: bool = True,
        size: int = 0,
    ) -> dict[str, Any]:
        """The fields of the reply to a message."""

        def outcome(variant: int, reader: wire.Reader) -> dict[str, Any]:
            try:
                return read_reply(reader, variant)
            except errors.TxnBusy as busy:
                if busy_is_final:
                    raise
                raise Busy(busy) from None

        reply: dict[str, Any] = await self._calls.call_variants(
            message, outcome, may_repeat=may_repeat, has_effect=has_effect, size=size
        )
        self.absorb(reply.get("token", 0))
        return reply

    async def read(
        self, keys: Iterable[bytes] = (), scans: Iterable[Scan] = (), *, level: TxnLevel = STRICT
    ) -> ReadResult:
        """A read-only transaction: keys and scans, all at one timestamp."""
        keys, scans, token = list(keys), list(scans), self.token

        def message(identifier: int) -> bytes:
            return read_only_message(identifier, token, level, keys, scans)

        found = await self.call(message, may_repeat=True, busy_is_final=False)
        return ReadResult(found["at"], found["rows"], found["scans"])

    async def one_shot(
        self,
        writes: Mapping[bytes, bytes | None],
        *,
        conditions: Mapping[bytes, int] | None = None,
        reads: Iterable[bytes] = (),
        otherwise: Iterable[bytes] = (),
    ) -> OneShotResult:
        """If all conditions hold (a key's version; 0: no such key): writes, and reads what was there before. Executed once."""
        size = _size(writes)
        key, acknowledged, token = self._name_commit()
        reads, otherwise, named = list(reads), list(otherwise), dict(conditions or {})

        def message(identifier: int) -> bytes:
            return one_shot_message(identifier, token, key, acknowledged, named, writes, reads, otherwise)

        try:
            reply = await self.call(message, may_repeat=True, has_effect=True, busy_is_final=False, size=size)
        except (errors.TimedOut, errors.MaybeExecuted, errors.CommitUnknown):
            raise self._lost(key) from None
        except errors.TxnError:
            self._answered(key)
            raise
        except BaseException:
            # Nobody waits for the answer any more, or it was not sent.
            self._lost(key)
            raise
        self._answered(key)
        return OneShotResult(reply.get("at"), reply["rows"], reply.get("condition"), commit_id(key))

    async def transaction(self, body: Callable[[Transaction], Awaitable[T]]) -> T:
        """Runs `body` in a transaction and commits what it wrote. An attempt that was aborted is made again, with the priority of the
        first; `body` is called anew for each. If `body` raises, nothing is written."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        priority: int | None = None
        attempts = 0
        while True:
            attempts += 1
            attempt, begun = await self._begin(priority)
            priority = begun if priority is None else priority
            try:
                done = await body(attempt)
                await self._commit(attempt)
                return done
            except _ATTEMPT_ENDS as error:
                ended: errors.TxnError = error
            except BaseException:
                if attempt.ended is None:
                    await self._calls.send_unanswered(give_up_message(attempt.number))
                    raise
                ended = attempt.ended
            pause = min(_PAUSE_MAX, _PAUSE * 2 ** min(attempts, 10))
            if asyncio.get_running_loop().time() + pause >= deadline:
                raise errors.Aborted(f"{attempts} attempts within {self._timeout} s, the last one: {ended}") from ended
            await asyncio.sleep(pause)

    async def fence(self) -> None:
        """Returns when every later transaction, of any session, sees what this session has seen."""
        token = self.token
        await self.call(lambda identifier: fence_message(identifier, token), may_repeat=True)

    async def status(self, name: str) -> int | None:
        """What became of a commit: its timestamp; None if it was not committed, or if that is not known any more."""
        session, _, number = name.partition("-")
        key = (int(session, 16), int(number))
        reply = await self.call(lambda identifier: status_message(identifier, key), may_repeat=True)
        committed: int | None = reply["committed"]
        return committed

    def _name_commit(self) -> tuple[tuple[int, int], int, int]:
        number = self._next
        self._next += 1
        self._open.add(number)
        return (self._name, number), min(self._open), self.token

    async def _begin(self, priority: int | None) -> tuple[Transaction, int]:
        token, named = self.token, 0

        def message(identifier: int) -> bytes:
            nonlocal named
            named = identifier
            return begin_message(identifier, token, priority)

        reply = await self.call(message, may_repeat=True, busy_is_final=False)
        return Transaction(self, named), reply["priority"]

    async def _commit(self, attempt: Transaction) -> int:
        if attempt.ended is not None:
            raise attempt.ended
        writes = attempt.writes
        size = _size(writes)
        key, acknowledged, _ = self._name_commit()

        def message(identifier: int) -> bytes:
            return commit_message(identifier, attempt.number, key, acknowledged, writes)

        try:
            reply = await self.call(message, may_repeat=False, size=size)
        except (errors.TimedOut, errors.MaybeExecuted, errors.CommitUnknown):
            return await self._fate_of(key)
        except errors.TxnError:
            self._answered(key)
            raise
        except BaseException:
            # Nobody waits for the answer any more, or it was not sent.
            self._lost(key)
            raise
        self._answered(key)
        at: int = reply["at"]
        return at

    async def _fate_of(self, key: tuple[int, int]) -> int:
        """The host that played the client is gone, or does not know: the shards' logs do."""
        now = asyncio.get_running_loop().time
        deadline = now() + self._timeout
        enough = now() + _ASK_FATE_WITHIN
        answered = now()
        # A shard that is not reached may have it: only what all have answered counts.
        while now() < deadline and answered < enough:
            try:
                committed = await self.status(commit_id(key))
                answered = now()
            except errors.CallError:
                committed = None
            if committed is not None:
                self.absorb(committed)
                self._answered(key)
                return committed
            await asyncio.sleep(_ASK_FATE_EVERY)
        raise self._lost(key)
