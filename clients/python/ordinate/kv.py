"""Calls of the key-value service (docs/protocol.md, sections 2 to 5)."""

from __future__ import annotations

import asyncio
import enum
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from . import errors, wire
from .link import Link, Window
from .wire import i64, of_bytes, u8, u32, u64

#: An answer slower than this is looked for at another host; twice as long each time.
RESEND_AFTER = 0.3
RESEND_AFTER_MAX = 5.0
BUSY_PAUSE = 0.02
#: Numbers of commands in flight: a session holds 4,096.
COMMANDS_MAX = 4_000
#: What one Submit or Query may hold: `paxos.batch_bytes_max` is 256 KiB.
ROW_BYTES = 64 << 10
_QUERIES_FROM = 1 << 63


class Level(enum.IntEnum):
    """What a read promises."""

    #: Sees every write that anybody had an answer to before.
    LINEARIZABLE = 0
    #: Sees this client's own writes, and never goes back in time.
    SEQUENTIAL = 1
    #: Sees some earlier state, without waiting.
    EVENTUAL = 2


@dataclass(frozen=True)
class Versioned:
    """A value, and the revision of its last write."""

    version: int
    value: bytes


@dataclass(frozen=True)
class Item:
    """A key with its value."""

    key: bytes
    versioned: Versioned


@dataclass(frozen=True)
class Page:
    """Items in the order of keys, and the key to go on with; none at the end."""

    items: list[Item]
    next: bytes | None


@dataclass(frozen=True)
class Written:
    """A write was done; 0 as the previous version: there was none."""

    version: int
    previous: int


@dataclass(frozen=True)
class Deleted:
    """A delete was done; revision 0: there was nothing."""

    revision: int
    previous: int


@dataclass(frozen=True)
class Mismatch:
    """The key was not as expected, and nothing was changed."""

    found: Versioned | None


@dataclass(frozen=True)
class MismatchAt:
    """The same, where what the key holds is too large to be sent unasked."""

    version: int


@dataclass(frozen=True)
class Counted:
    """An increment was done."""

    sum: int
    version: int
    previous: int


@dataclass(frozen=True)
class BatchFailed:
    """Nothing of a batch was executed, because of this command."""

    index: int
    answer: Any


#: How a condition that does not hold is answered.
NotAsExpected = Mismatch | MismatchAt
NOT_AS_EXPECTED = (Mismatch, MismatchAt)


# Commands and queries, encoded.


def put_command(key: bytes, value: bytes) -> bytes:
    return u8(1) + of_bytes(key) + of_bytes(value)


def delete_command(key: bytes) -> bytes:
    return u8(2) + of_bytes(key)


def _compare_and_set(key: bytes, expectation: bytes, value: bytes | None) -> bytes:
    return u8(3) + of_bytes(key) + expectation + wire.option(None if value is None else of_bytes(value))


def set_if_absent_command(key: bytes, value: bytes | None) -> bytes:
    return _compare_and_set(key, u8(0), value)


def set_if_version_command(key: bytes, version: int, value: bytes | None) -> bytes:
    return _compare_and_set(key, u8(1) + u64(version), value)


def set_if_value_command(key: bytes, expected: bytes, value: bytes | None) -> bytes:
    return _compare_and_set(key, u8(2) + of_bytes(expected), value)


def increment_command(key: bytes, by: int) -> bytes:
    return u8(4) + of_bytes(key) + i64(by)


def batch_command(commands: Sequence[bytes]) -> bytes:
    return u8(5) + wire.list_of(commands)


def get_query(key: bytes) -> bytes:
    return u8(1) + of_bytes(key)


def get_many_query(keys: Sequence[bytes]) -> bytes:
    return u8(2) + wire.list_of(of_bytes(key) for key in keys)


def scan_query(start: bytes, end: bytes | None, limit: int) -> bytes:
    return u8(3) + of_bytes(start) + wire.option(None if end is None else of_bytes(end)) + u32(limit)


def _versioned(reader: wire.Reader) -> Versioned:
    return Versioned(reader.u64(), reader.bytes())


def _item(reader: wire.Reader) -> Item:
    key, present = reader.bytes(), reader.u8()
    if present != 1:
        raise wire.Malformed("an item without a value")
    return Item(key, _versioned(reader))


def read_answer(reader: wire.Reader) -> Any:
    """What an answer says."""
    tag = reader.u8()
    if tag == 1:
        return Written(reader.u64(), reader.u64())
    if tag == 2:
        return Deleted(reader.u64(), reader.u64())
    if tag == 3:
        return Mismatch(reader.option(_versioned))
    if tag == 4:
        return Counted(reader.i64(), reader.u64(), reader.u64())
    if tag == 5:
        return reader.list(read_answer)
    if tag == 6:
        return BatchFailed(reader.u32(), read_answer(reader))
    if tag == 7:
        return reader.option(_versioned)
    if tag == 8:
        return reader.list(lambda reader: reader.option(_versioned))
    if tag == 9:
        return Page(reader.list(_item), reader.option(wire.Reader.bytes))
    if tag == 10:
        return errors.Invalid(reader.text())
    if tag == 11:
        return MismatchAt(reader.u64())
    raise wire.Malformed(f"an answer of kind {tag}")


# Messages.


def _rows(rows: Sequence[tuple[int, bytes]]) -> bytes:
    return of_bytes(b"".join(u64(number) + of_bytes(body) for number, body in rows))


def open_message(session: int) -> bytes:
    return bytes([1, 1]) + u64(session) + u64(0) + u8(1) + _rows([])


def close_message(session: int) -> bytes:
    return bytes([1, 1]) + u64(session) + u64(0) + u8(2) + _rows([])


def submit_message(session: int, acknowledged: int, slot: int, commands: Sequence[tuple[int, bytes]]) -> bytes:
    return bytes([1, 1]) + u64(session) + u64(acknowledged) + u8(3) + u64(slot) + _rows(commands)


def query_message(session: int, level: Level, seen: int, queries: Sequence[tuple[int, bytes]]) -> bytes:
    return bytes([1, 2]) + u64(session) + u8(level) + u64(seen) + _rows(queries)


@dataclass(frozen=True)
class Results:
    """Answers of a host: number, status and answer of each call."""

    session: int
    executed: int
    rows: list[tuple[int, int, bytes]]


def read_results(message: bytes) -> Results:
    """The message with tags 7 1."""
    reader = wire.Reader(message)
    reader.take(2)
    session, executed = reader.u64(), reader.u64()
    rows, found = wire.Reader(reader.bytes()), []
    while rows.left:
        found.append((rows.u64(), rows.u8(), rows.bytes()))
    return Results(session, executed, found)


_DONE, _BUSY, _SESSION_LOST, _MALFORMED, _NOT_GRANTED = 0, 1, 2, 3, 6


@dataclass(eq=False)
class _Call:
    body: bytes
    level: Level | None
    answer: asyncio.Future[Any]
    sent: bool = False


@dataclass
class _Session:
    name: int = field(default_factory=lambda: secrets.randbits(64))
    #: In which it was opened; none yet.
    slot: int | None = None
    next: int = 0


class Kv:
    """The key-value store. A command is executed once, however often it is sent."""

    def __init__(
        self, endpoints: list[str], tls: ssl.SSLContext | None, token: str, timeout: float, window: Window
    ) -> None:
        self._link = Link(endpoints, tls, token, self._on_message, self._on_up, self._on_down, self._on_off)
        self._timeout = timeout
        self._window = window
        self._session = _Session()
        #: Without a number yet: they wait for a session, or for room in it.
        self._unnumbered: list[_Call] = []
        self._commands: dict[int, _Call] = {}
        self._queries: dict[int, _Call] = {}
        self._next_query = _QUERIES_FROM
        self._seen = 0
        self._closed = False
        self._flushing = False
        self._patience = RESEND_AFTER
        self._patrol: asyncio.Task[None] | None = None
        self._heard = 0.0

    async def put(self, key: bytes, value: bytes) -> int:
        """Writes, and returns the version."""
        written: Written = await self.execute(put_command(key, value), Written)
        return written.version

    async def delete(self, key: bytes) -> bool:
        """Deletes; false if there was nothing."""
        deleted: Deleted = await self.execute(delete_command(key), Deleted)
        return deleted.revision != 0

    async def increment(self, key: bytes, by: int = 1) -> int:
        """Adds to a decimal number, and returns the sum."""
        counted: Counted = await self.execute(increment_command(key, by), Counted)
        return counted.sum

    async def put_if_absent(self, key: bytes, value: bytes) -> Written | NotAsExpected:
        """Writes unless the key exists."""
        answer: Written | NotAsExpected = await self.execute(set_if_absent_command(key, value), (Written, *NOT_AS_EXPECTED))
        return answer

    async def cas(self, key: bytes, version: int, value: bytes | None) -> Written | Deleted | NotAsExpected:
        """Writes, or deletes where the value is none, if the key's version is this one."""
        command = set_if_version_command(key, version, value)
        answer: Written | Deleted | NotAsExpected = await self.execute(command, (Written, Deleted, *NOT_AS_EXPECTED))
        return answer

    async def cas_value(self, key: bytes, expected: bytes, value: bytes | None) -> Written | Deleted | NotAsExpected:
        """The same if the key's value is this one."""
        command = set_if_value_command(key, expected, value)
        answer: Written | Deleted | NotAsExpected = await self.execute(command, (Written, Deleted, *NOT_AS_EXPECTED))
        return answer

    async def batch(self, commands: Sequence[bytes]) -> list[Any] | BatchFailed:
        """Executes commands (see `put_command` and the like) as a whole or not at all."""
        answer: list[Any] | BatchFailed = await self.execute(batch_command(commands), (list, BatchFailed))
        return answer

    async def get(self, key: bytes, level: Level = Level.LINEARIZABLE) -> Versioned | None:
        """What a key holds."""
        found: Versioned | None = await self.query(get_query(key), (Versioned, type(None)), level)
        return found

    async def get_many(self, keys: Sequence[bytes], level: Level = Level.LINEARIZABLE) -> list[Versioned | None]:
        """What keys hold, as of one moment, in the order asked."""
        found: list[Versioned | None] = await self.query(get_many_query(keys), list, level)
        return found

    async def scan(
        self, start: bytes = b"", end: bytes | None = None, limit: int = 1_000, level: Level = Level.LINEARIZABLE
    ) -> Page:
        """Keys from `start` on and below `end`, at most `limit`; about 1 MiB at a time."""
        page: Page = await self.query(scan_query(start, end, limit), Page, level)
        return page

    async def execute(self, command: bytes, kind: Any) -> Any:
        """An encoded command's answer."""
        return await self._call(command, None, kind)

    async def query(self, query: bytes, kind: Any, level: Level) -> Any:
        """An encoded query's answer."""
        return await self._call(query, level, kind)

    async def close(self) -> None:
        self._closed = True
        if self._link.is_up and self._session.slot is not None:
            self._link.send(close_message(self._session.name))
            # What is sent leaves in the loop's next turns; a session that is not closed is pushed out by others.
            await asyncio.sleep(0.001)
        if self._patrol is not None:
            self._patrol.cancel()
        await self._link.close()
        for call in [*self._unnumbered, *self._commands.values(), *self._queries.values()]:
            _fail(call, errors.Closed("the client is closed"))

    async def _call(self, body: bytes, level: Level | None, kind: Any) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        try:
            async with asyncio.timeout_at(deadline):
                await self._window.enter(len(body))
        except TimeoutError:
            raise errors.NotSent(f"too much was in flight for {self._timeout} s; the call was not sent") from None
        try:
            if self._closed:
                raise errors.Closed("the client is closed")
            call = _Call(body, level, loop.create_future())
            self._take(call)
            try:
                async with asyncio.timeout_at(deadline):
                    answer = await call.answer
            except TimeoutError:
                within = f"no answer within {self._timeout} s"
                if call in self._unnumbered:
                    said = "the request was sent to no host, so nothing was executed"
                    raise errors.NotSent(f"{within}; {said}") from None
                raise errors.TimedOut(f"{within}; a write may have been executed") from None
            finally:
                self._forget(call)
        finally:
            self._window.leave(len(body))
        if isinstance(answer, errors.Invalid):
            raise answer
        if not isinstance(answer, kind):
            raise errors.Unreadable(f"an answer of another kind: {type(answer).__name__}")
        return answer

    def _take(self, call: _Call) -> None:
        if call.level is None:
            self._unnumbered.append(call)
        else:
            self._queries[self._next_query] = call
            self._next_query += 1
        self._link.want()
        if self._patrol is None or self._patrol.done():
            self._heard = asyncio.get_running_loop().time()
            self._patrol = asyncio.get_running_loop().create_task(self._look_around())
        self._flush_soon()

    def _forget(self, call: _Call) -> None:
        """Of a call whose caller has stopped waiting. A command that was sent keeps its number: another must not get it."""
        if call in self._unnumbered:
            self._unnumbered.remove(call)
        if call.level is not None:
            self._queries = {number: other for number, other in self._queries.items() if other is not call}

    def _flush_soon(self) -> None:
        """What is asked in one turn of the loop travels together."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if not self._link.is_up:
            return
        session = self._session
        if session.slot is None:
            if self._unnumbered:
                self._link.send(open_message(session.name))
        else:
            room = COMMANDS_MAX - (session.next - self._acknowledged())
            numbered, self._unnumbered = self._unnumbered[:room], self._unnumbered[room:]
            for call in numbered:
                self._commands[session.next] = call
                session.next += 1
            self._send_commands([number for number, call in self._commands.items() if not call.sent])
        self._send_queries([number for number, call in self._queries.items() if not call.sent])

    def _acknowledged(self) -> int:
        return min(self._commands, default=self._session.next)

    def _send_commands(self, numbers: list[int]) -> None:
        for row in _in_rows(numbers, self._commands):
            session = self._session
            assert session.slot is not None
            self._link.send(submit_message(session.name, self._acknowledged(), session.slot, row))

    def _send_queries(self, numbers: list[int]) -> None:
        for level in Level:
            of_level = [number for number in numbers if self._queries[number].level == level]
            for row in _in_rows(of_level, self._queries):
                self._link.send(query_message(self._session.name, level, self._seen, row))

    def _on_up(self) -> None:
        for call in [*self._commands.values(), *self._queries.values()]:
            # Under its old number it is executed once, whatever the last host did.
            if call.sent:
                call.sent = False
        self._heard = asyncio.get_running_loop().time()
        self._flush_soon()

    def _on_down(self) -> None:
        pass

    async def _look_around(self) -> None:
        """Turns to another host while nothing is heard of this one."""
        while self._unnumbered or self._commands or self._queries:
            await asyncio.sleep(self._patience / 2)
            if asyncio.get_running_loop().time() - self._heard >= self._patience:
                self._patience = min(self._patience * 2, RESEND_AFTER_MAX)
                self._heard = asyncio.get_running_loop().time()
                self._link.turn()

    def _on_off(self, why: str) -> None:
        """Hosts of one cluster have the same services: nobody else is asked."""
        calls = [*self._unnumbered, *self._commands.values(), *self._queries.values()]
        self._unnumbered, self._commands, self._queries = [], {}, {}
        for call in calls:
            _fail(call, errors.ServiceOff(f"the service is off there, so nothing was executed: {why}"))

    def _on_message(self, message: bytes) -> None:
        if message[:2] != bytes([7, 1]):
            return
        results = read_results(message)
        if results.session != self._session.name:
            return
        self._heard = asyncio.get_running_loop().time()
        self._patience = RESEND_AFTER
        if not results.rows and self._session.slot is None:
            if results.executed > 0:
                self._session.slot = results.executed - 1
                self._flush_soon()
            else:
                asyncio.get_running_loop().call_later(BUSY_PAUSE, self._flush_soon)
        for number, status, body in results.rows:
            self._on_result(number, status, body, results.executed)

    def _on_result(self, number: int, status: int, body: bytes, executed: int) -> None:
        in_flight = self._queries if number >= _QUERIES_FROM else self._commands
        call = in_flight.get(number)
        if call is None:
            return
        if status == _BUSY:
            call.sent = False
            asyncio.get_running_loop().call_later(BUSY_PAUSE, self._flush_soon)
            return
        if status == _SESSION_LOST:
            return self._lose_session()
        del in_flight[number]
        if call.answer.done():
            return
        if status == _DONE:
            self._seen = max(self._seen, executed)
            try:
                call.answer.set_result(read_answer(wire.Reader(body)))
            except wire.Malformed as error:
                _fail(call, errors.Unreadable(f"the answer cannot be read: {error}"))
        elif status == _MALFORMED:
            _fail(call, errors.Refused("the command was refused and not executed: malformed or too large"))
        elif status == _NOT_GRANTED:
            _fail(call, errors.NotGranted("not granted: the command was not executed"))
        else:
            _fail(call, errors.Unreadable(f"status {status}"))
        if self._unnumbered:
            self._flush_soon()

    def _lose_session(self) -> None:
        commands, self._commands = self._commands, {}
        self._session = _Session()
        for call in commands.values():
            _fail(call, errors.MaybeExecuted("the session was lost; the write may have been executed"))
        # Answers to queries come under the session's name.
        for call in self._queries.values():
            call.sent = False
        self._flush_soon()


def _in_rows(numbers: list[int], calls: dict[int, _Call]) -> list[list[tuple[int, bytes]]]:
    """Calls as rows for one message each; they count as sent."""
    rows: list[list[tuple[int, bytes]]] = []
    size = ROW_BYTES
    for number in numbers:
        call = calls[number]
        call.sent = True
        if size + len(call.body) > ROW_BYTES:
            rows.append([])
            size = 0
        rows[-1].append((number, call.body))
        size += len(call.body) + 12
    return rows


def _fail(call: _Call, error: errors.CallError) -> None:
    if not call.answer.done():
        call.answer.set_exception(error)
