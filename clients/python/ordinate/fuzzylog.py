"""The partially ordered log (docs/protocol.md, section 10; docs/fuzzylog.md)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import errors, wire
from .calls import Busy, Calls
from .wire import list_of, of_bytes, of_text, u16, u32, u64

TO_HOST = 26
TO_CLIENT = 27
#: Nodes of one call.
NODES_MAX = 256
#: Numbers of a session that have no answer.
NUMBERS_MAX = 1_024
#: The longest that a sync waits for a node, in seconds.
WAIT_MAX = 30.0

_APPEND, _SYNC, _PLAY, _SNAPSHOT, _TRIM, _APPEND_PLAYED, _NAME, _AWAIT, _TRIM_SEEN = range(1, 10)
_APPENDED, _PLAYED, _TAKEN, _TRIMMED, _FAILED, _PLAYED_ACROSS, _NAMED, _IS_HERE = range(1, 9)
_BUSY, _UNKNOWN, _WAS_TRIMMED, _BEYOND, _NOT_GRANTED, _NO_CLOCK = 1, 2, 6, 7, 11, 15
_FAILURES: dict[int, tuple[type[errors.FuzzyError], str]] = {
    3: (errors.FuzzyMalformed, "malformed, or beyond a limit: nothing was executed"),
    4: (errors.FuzzyForgotten, "the client has the answer to this number"),
    5: (errors.FuzzyNumberUsed, "the client has used this number for something else"),
    8: (errors.FuzzyFull, "the colours' partition has as much as fuzzylog.partition_bytes allows"),
    9: (errors.FuzzyDiskFull, "the disks are full: nothing was executed"),
    10: (errors.FuzzyMalformed, "two of the colours have one digest: rename one"),
    12: (errors.OtherRegion, "what was seen, or the position, is another region's: give a snapshot's id"),
    13: (errors.NotHere, "this region has not all of the snapshot yet: nothing was executed"),
    14: (errors.FuzzyMalformed, "the snapshot's id is cut or changed, or another cluster's"),
    16: (errors.FuzzyMalformed, "what was seen is of a time that has not come: nothing was executed"),
    17: (errors.FuzzyMalformed, "colours have moved since the cut: begin anew"),
    18: (errors.FuzzyMalformed, "there is no such partition, or it is being removed: nothing was changed"),
    19: (errors.FuzzyMalformed, "as many colours have moved, or as many partitions are there, as may be"),
    20: (errors.FuzzyMalformed, "the move was taken back: a partition had no room, or did not answer in time"),
    21: (errors.FuzzyMalformed, "the partition was there from the beginning, and stays: nothing was changed"),
    22: (errors.FuzzyMalformed, "among several regions colours do not move: nothing was changed"),
}


@dataclass(frozen=True, order=True)
class SeenTime:
    """A time of the log's order: what a session has seen. Opaque; later times are larger."""

    clock: int = 0
    partition: int = 0
    ahead: int = 0

    def __str__(self) -> str:
        return f"{self.clock:x}-{self.partition:x}-{self.ahead:x}"

    @staticmethod
    def parse(text: str) -> SeenTime:
        """The inverse of `str`."""
        parts = [int(part, 16) for part in text.split("-")]
        if len(parts) != 3:
            raise ValueError(f"{text!r} is no time that an answer has")
        return SeenTime(*parts)


@dataclass(frozen=True)
class SnapshotId:
    """How far colours go, and what has been seen by then."""

    seen: SeenTime
    tails: Mapping[str, int]

    def tail(self, colour: str) -> int:
        """The position after a colour's last node; 0 of one that it does not name."""
        return self.tails.get(colour, 0)

    def subsumes(self, other: SnapshotId) -> bool:
        """True if all nodes of the other one are in this one."""
        return all(self.tail(colour) >= tail for colour, tail in other.tails.items())

    def join(self, other: SnapshotId) -> SnapshotId:
        """The least one that subsumes both."""
        tails = {colour: max(self.tail(colour), other.tail(colour)) for colour in {*self.tails, *other.tails}}
        return SnapshotId(max(self.seen, other.seen), tails)

    def __str__(self) -> str:
        return f"{self.seen}/" + ",".join(f"{colour}={tail}" for colour, tail in sorted(self.tails.items()))

    @staticmethod
    def parse(text: str) -> SnapshotId:
        """The inverse of `str`."""
        seen, slash, tails = text.partition("/")
        parts = [part.rpartition("=") for part in tails.split(",")] if tails else []
        if not slash or not all(colour for colour, _, _ in parts):
            raise ValueError(f"{text!r} is no snapshot id")
        return SnapshotId(SeenTime.parse(seen), {colour: int(tail) for colour, _, tail in parts})


@dataclass(frozen=True)
class NewNode:
    """A node to be appended: one body for all its colours, or one for each, in their order."""

    colours: Sequence[str]
    bodies: Sequence[bytes]


@dataclass(frozen=True)
class AppendedNode:
    """Where an append is."""

    #: When; the same in all colours.
    at: SeenTime
    #: Its position in each.
    positions: dict[str, int]


@dataclass(frozen=True)
class FuzzyNode:
    """A node, as it is played."""

    position: int
    at: SeenTime
    #: All its colours; none: it is of another colour whose name has the same digest.
    colours: tuple[str, ...]
    body: bytes


@dataclass(frozen=True)
class NodesPage:
    """Nodes, one position after the other."""

    seen: SeenTime
    start: int
    tail: int
    nodes: list[FuzzyNode]
    #: Among several regions: the one that is played, whose positions these are.
    region: str | None = None

    @property
    def next(self) -> int:
        """Where to play on."""
        return self.start + len(self.nodes)


def _time(seen: SeenTime) -> bytes:
    return u64(seen.clock) + u16(seen.partition) + u64(seen.ahead)


def _read_time(reader: wire.Reader) -> SeenTime:
    return SeenTime(reader.u64(), reader.u16(), reader.u64())


def _head(variant: int, identifier: int) -> bytes:
    return bytes([TO_HOST, variant]) + u64(identifier)


def _names(colours: Iterable[str]) -> bytes:
    return list_of(of_text(colour) for colour in colours)


def _node(node: NewNode) -> bytes:
    return _names(node.colours) + list_of(of_bytes(body) for body in node.bodies)


def append_message(identifier: int, seen: SeenTime, by: tuple[int, int, int], nodes: Iterable[NewNode]) -> bytes:
    """An append of nodes; `by`: the client, the first one's number, and below which the client has all answers."""
    numbers = b"".join(u64(number) for number in by)
    return _head(_APPEND, identifier) + _time(seen) + numbers + list_of(_node(node) for node in nodes)


def sync_message(identifier: int, seen: SeenTime, colour: str, start: int, wait_ms: int) -> bytes:
    """A sync of a colour."""
    return _head(_SYNC, identifier) + _time(seen) + of_text(colour) + u64(start) + u32(wait_ms)


def play_message(identifier: int, colour: str, start: int, end: int) -> bytes:
    """A page of what is known to be there."""
    return _head(_PLAY, identifier) + of_text(colour) + u64(start) + u64(end)


def snapshot_message(identifier: int, seen: SeenTime, by: tuple[int, int, int], colours: Iterable[str]) -> bytes:
    """A snapshot of colours."""
    return _head(_SNAPSHOT, identifier) + _time(seen) + b"".join(u64(number) for number in by) + _names(colours)


def trim_message(identifier: int, colour: str, before: int) -> bytes:
    """A trim."""
    return _head(_TRIM, identifier) + of_text(colour) + u64(before)


def append_played_message(
    identifier: int,
    seen: SeenTime,
    by: tuple[int, int, int],
    nodes: Iterable[NewNode],
    played: Iterable[Iterable[int]],
) -> bytes:
    """The same among several regions, by one who has played so much of each node's colours."""
    numbers = b"".join(u64(number) for number in by)
    of_nodes = list_of(list_of(u64(position) for position in positions) for positions in played)
    head = _head(_APPEND_PLAYED, identifier) + _time(seen) + numbers
    return head + list_of(_node(node) for node in nodes) + of_nodes


def name_message(identifier: int, seen: SeenTime, tails: Mapping[str, int]) -> bytes:
    """Names what was seen of colours for other regions."""
    return _head(_NAME, identifier) + _time(seen) + _names(tails) + list_of(u64(tail) for tail in tails.values())


def await_message(identifier: int, snapshot: str, wait_ms: int) -> bytes:
    """Waits until the region has all that a snapshot has."""
    return _head(_AWAIT, identifier) + of_text(snapshot) + u32(wait_ms)


def trim_seen_message(identifier: int, seen: SeenTime, colour: str, before: int) -> bytes:
    """A trim among several regions, at a position of the one that `seen` is of."""
    return _head(_TRIM_SEEN, identifier) + _time(seen) + of_text(colour) + u64(before)


def _read_origin(reader: wire.Reader) -> tuple[str, int, list[tuple[str, int]]]:
    return reader.text(), reader.u64(), reader.list(lambda it: (it.text(), it.u64()))


def read_reply(variant: int, reader: wire.Reader) -> Any:
    """What a reply says, behind its number; failures are raised."""
    if variant == _APPENDED:
        return _read_time(reader), reader.list(lambda it: (_read_time(it), it.list(wire.Reader.u64)))
    if variant in (_PLAYED, _PLAYED_ACROSS):
        seen, start, tail = _read_time(reader), reader.u64(), reader.u64()
        nodes = reader.list(lambda it: (_read_time(it), tuple(it.list(wire.Reader.text)), it.bytes()))
        region = None
        if variant == _PLAYED_ACROSS:
            region, _ = reader.text(), reader.list(_read_origin)
        return NodesPage(seen, start, tail, [FuzzyNode(start + nth, *node) for nth, node in enumerate(nodes)], region)
    if variant == _NAMED:
        return reader.text()
    if variant == _IS_HERE:
        return _read_time(reader), reader.list(wire.Reader.u64), reader.text()
    if variant == _TAKEN:
        return _read_time(reader), _read_time(reader), reader.list(wire.Reader.u64)
    if variant == _TRIMMED:
        return reader.u64()
    if variant != _FAILED:
        raise wire.Malformed(f"reply {variant}")
    why, position = reader.u8(), reader.u64()
    if why in (_BUSY, _UNKNOWN, _NO_CLOCK):
        # What may have been executed is asked for again, too: it has a number.
        raise Busy
    if why == _WAS_TRIMMED:
        raise errors.AlreadyTrimmed(f"nodes below {position} were trimmed: load the state before from elsewhere", position)
    if why == _BEYOND:
        raise errors.BeyondColour(f"the colour ends at {position}", position)
    if why == _NOT_GRANTED:
        raise errors.NotGranted("not granted: nothing was executed")
    kind, text = _FAILURES.get(why, (errors.FuzzyMalformed, f"refused for a reason that is not known: {why}"))
    raise kind(text)


def _tails_of(named: str) -> dict[str, int]:
    """The positions that a named snapshot's text has."""
    tails = named.partition("/")[2].rpartition("~")[0]
    parts = [part.rpartition("=") for part in tails.split(",")] if tails else []
    return {colour: int(counts.partition(":")[0]) for colour, _, counts in parts}


class FuzzySession:
    """The partially ordered log: what a session does is ordered behind what it has seen. Appends are executed once."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._seen = SeenTime()
        self._client = secrets.randbits(64)
        self._next = 1
        #: Among several regions: the one that is played, and how far each colour was there.
        self._region: str | None = None
        self._played: dict[str, int] = {}
        #: Numbers without an answer.
        self._open: set[int] = set()
        self._answered = asyncio.Event()

    def session(self) -> FuzzySession:
        """Another session over the same connection, which has seen nothing yet."""
        return FuzzySession(self._calls)

    @property
    def seen(self) -> SeenTime:
        """What the session has seen, to be carried to another process or host."""
        return self._seen

    def absorb(self, seen: SeenTime) -> None:
        """The session has seen what another one has."""
        self._seen = max(self._seen, seen)

    def new_instance(self, colour: str, snapshot: SnapshotId | None = None) -> FuzzyInstance:
        """Plays one colour, from its beginning or behind a snapshot."""
        if snapshot is not None:
            self.absorb(snapshot.seen)
        return FuzzyInstance(self, colour, 0 if snapshot is None else snapshot.tail(colour))

    async def append(self, colours: Sequence[str], body: bytes) -> AppendedNode:
        """Appends a node to all of these colours, or to none."""
        return (await self.append_all([NewNode(colours, [body])]))[0]

    async def append_after(self, colours: Sequence[str], body: bytes, after: Iterable[SnapshotId]) -> AppendedNode:
        """The same, behind what these snapshots, of whichever colours, have seen."""
        for snapshot in after:
            self.absorb(snapshot.seen)
        return await self.append(colours, body)

    async def append_each(self, bodies: Mapping[str, bytes]) -> AppendedNode:
        """Appends a node that holds something else in each of its colours."""
        return (await self.append_all([NewNode(list(bodies), list(bodies.values()))]))[0]

    async def append_all(self, nodes: Sequence[NewNode]) -> list[AppendedNode]:
        """Appends several nodes by one message. Each is in all its colours or in none; nothing orders them among each other."""
        if not 1 <= len(nodes) <= NODES_MAX:
            raise ValueError(f"{len(nodes)} nodes: a call has 1 to {NODES_MAX}")
        seen, size = self._seen, sum(len(body) for node in nodes for body in node.bodies)
        played = [[self._played.get(colour, 0) for colour in node.colours] for node in nodes]
        has_played = self._region is not None and any(map(any, played))

        def message(identifier: int, by: tuple[int, int, int]) -> bytes:
            if has_played:
                # The other regions are to have what was played before.
                return append_played_message(identifier, seen, by, nodes, played)
            return append_message(identifier, seen, by, nodes)

        seen, appended = await self._numbered(len(nodes), message, size)
        self.absorb(seen)
        if len(appended) != len(nodes):
            raise errors.Unreadable(f"{len(appended)} nodes for {len(nodes)}")
        return [AppendedNode(at, dict(zip(node.colours, where))) for node, (at, where) in zip(nodes, appended)]

    async def snapshot(self, colours: Sequence[str]) -> SnapshotId:
        """How far several colours go, at one point of the order: no node is half inside."""
        seen = self._seen
        seen, _, tails = await self._numbered(
            1, lambda identifier, by: snapshot_message(identifier, seen, by, colours), 0
        )
        self.absorb(seen)
        return SnapshotId(seen, dict(zip(colours, tails)))

    async def named(self, snapshot: SnapshotId) -> str:
        """A snapshot of this session as text, named so that another region can have it."""
        name: str = await self._ask(lambda identifier: name_message(identifier, snapshot.seen, snapshot.tails))
        return name

    async def await_snapshot(self, snapshot: str, wait: float = 5.0) -> str:
        """Waits until the region of this session's hosts has all that a named snapshot of whichever region has.

        What the session does from now on is ordered behind. Returns the same of this region. `NotHere`: it has not all of it yet.
        """
        wait_ms = int(min(wait, WAIT_MAX) * 1000)
        seen, _, here = await self._ask(lambda identifier: await_message(identifier, snapshot, wait_ms), wait=wait)
        self.absorb(seen)
        if "@" in here.partition("/")[0]:
            for colour, position in _tails_of(here).items():
                self._played[colour] = max(position, self._played.get(colour, 0))
        text: str = here
        return text

    async def trim(self, snapshot: SnapshotId) -> None:
        """Drops the nodes that a snapshot has, from each of its colours."""
        for colour, before in snapshot.tails.items():
            if self._region is None:
                await self._ask(lambda identifier: trim_message(identifier, colour, before))
            else:
                await self._ask(lambda identifier: trim_seen_message(identifier, snapshot.seen, colour, before))

    async def page(self, colour: str, start: int, end: int | None = None, wait: float = 0.0) -> NodesPage:
        """A page of a colour: up to its end, for which it may wait, or up to what a sync or a snapshot has found."""
        if end is not None:
            page: NodesPage = await self._ask(lambda identifier: play_message(identifier, colour, start, end))
        else:
            seen, wait = self._seen, min(wait, WAIT_MAX)
            wait_ms = int(wait * 1000)
            page = await self._ask(lambda identifier: sync_message(identifier, seen, colour, start, wait_ms), wait=wait)
        self._plays_in(page.region)
        self.absorb(page.seen)
        if page.region is not None:
            self._played[colour] = max(page.next, self._played.get(colour, 0))
        return page

    def _plays_in(self, region: str | None) -> None:
        if region is not None and self._region not in (None, region):
            raise errors.OtherRegion(f"positions of {self._region} mean nothing in {region}")
        self._region = region

    async def _numbered(self, count: int, message: Callable[[int, tuple[int, int, int]], bytes], size: int) -> Any:
        while self._next + count - min(self._open, default=self._next) > NUMBERS_MAX:
            self._answered.clear()
            await self._answered.wait()
        numbers = range(self._next, self._next + count)
        client, by = self._client, (self._client, numbers[0], min(self._open, default=numbers[0]))
        self._next += count
        self._open.update(numbers)
        given_up = True
        try:
            answer = await self._ask(lambda identifier: message(identifier, by), size=size)
            given_up = False
            return answer
        except errors.FuzzyFull:
            # It may still be executed.
            raise
        except errors.FuzzyError:
            given_up = False
            raise
        finally:
            if client == self._client:
                self._open.difference_update(numbers)
                if given_up:
                    # It must not be said that its answer is there: the session goes on as another client.
                    self._client, self._next = secrets.randbits(64), 1
                    self._open.clear()
            self._answered.set()

    async def _ask(self, message: Callable[[int], bytes], size: int = 0, wait: float = 0.0) -> Any:
        return await self._calls.call_variants(message, read_reply, may_repeat=True, size=size, wait=wait)


class FuzzyInstance:
    """Plays one colour: every node once, in order."""

    def __init__(self, session: FuzzySession, colour: str, start: int) -> None:
        self.colour = colour
        self._session = session
        self._next = start

    def snapshot(self) -> SnapshotId:
        """What was played so far."""
        return SnapshotId(self._session.seen, {self.colour: self._next})

    async def append(self, body: bytes) -> AppendedNode:
        """Appends a node to the colour."""
        return await self._session.append([self.colour], body)

    async def sync(self, play: Callable[[FuzzyNode], None]) -> SnapshotId:
        """Plays all nodes that were appended before, and were not played yet. Linearizable.

        `AlreadyTrimmed`: somebody trimmed what was not played here. After any error, what was played was played.
        """
        page = await self._session.page(self.colour, self._next)
        self._take(page, play)
        return await self._play_to(page.tail, play)

    async def sync_to(self, snapshot: SnapshotId, play: Callable[[FuzzyNode], None]) -> SnapshotId:
        """Plays nodes up to what a snapshot has, for example one of several colours."""
        self._session.absorb(snapshot.seen)
        return await self._play_to(snapshot.tail(self.colour), play)

    async def play(self, wait: float = 0.0) -> list[FuzzyNode]:
        """The next page of nodes; at the end, waits for one up to `wait` seconds."""
        nodes: list[FuzzyNode] = []
        self._take(await self._session.page(self.colour, self._next, wait=wait), nodes.append)
        return nodes

    async def trim(self, snapshot: SnapshotId) -> None:
        """Drops the nodes that a snapshot has from this colour."""
        await self._session.trim(SnapshotId(snapshot.seen, {self.colour: snapshot.tail(self.colour)}))

    async def _play_to(self, tail: int, play: Callable[[FuzzyNode], None]) -> SnapshotId:
        while self._next < tail:
            page = await self._session.page(self.colour, self._next, tail)
            if not page.nodes:
                raise errors.Unreadable("a page without nodes")
            self._take(page, play)
        return self.snapshot()

    def _take(self, page: NodesPage, play: Callable[[FuzzyNode], None]) -> None:
        for node in page.nodes:
            self._next = node.position + 1
            if node.colours:
                play(node)
