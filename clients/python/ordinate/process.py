"""A process of an application that uses several services (libRSS; docs/transactions.md)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from . import errors
from .client import Client
from .kv import Kv, Level
from .log import Log
from .txn import TxnSession

TXN, LOG, KV = "txn", "log", "kv"
#: What every library passes on of a baggage header.
_HEADER_BYTES_MAX, _ENTRIES_MAX = 8192, 64
_ENTRY, _VERSION = "ordinate", "v1."
_NAME_BYTES_MAX = 255


class MalformedBaggage(errors.TxnError):
    """A baggage entry of ours that cannot be read: nothing of it was taken in."""


class FullBaggage(errors.TxnError):
    """The header has no room for what the process knows: do not send the message without it."""


class NoSuchService(errors.TxnError):
    """The process was made without the service."""


@dataclass
class Context:
    """What a process knows: the services that it used last, and a token for each service; a number stands for a fence."""

    last: set[str] = field(default_factory=set)
    tokens: dict[str, bytes | int] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """Counts, then names and tokens with their lengths before them, in the order of the names."""
        out = _number(len(self.last)) + b"".join(_sized(name.encode()) for name in _in_order(self.last))
        out += _number(len(self.tokens))
        for name in _in_order(self.tokens):
            token = self.tokens[name]
            out += _sized(name.encode()) + (b"\1" + _number(token) if isinstance(token, int) else b"\0" + _sized(token))
        return out

    @staticmethod
    def decoded(data: bytes) -> Context:
        """The reverse."""
        reader, context = _Reader(data), Context()
        for _ in range(reader.number()):
            context.last.add(reader.name())
        for _ in range(reader.number()):
            name, kind = reader.name(), reader.byte()
            if kind > 1:
                raise MalformedBaggage("a token of an unknown kind")
            context.tokens[name] = reader.number() if kind else reader.sized()
        if reader.rest:
            raise MalformedBaggage("more than one context")
        return context


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=str.encode)


def _number(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def _sized(data: bytes) -> bytes:
    return _number(len(data)) + data


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.rest = data

    def byte(self) -> int:
        if not self.rest:
            raise MalformedBaggage("the entry was cut")
        byte, self.rest = self.rest[0], self.rest[1:]
        return byte

    def number(self) -> int:
        number = 0
        for shift in range(0, 64, 7):
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80 and number < 1 << 64:
                return number
        raise MalformedBaggage("a number of more than 64 bits")

    def sized(self) -> bytes:
        count = self.number()
        if count > len(self.rest):
            raise MalformedBaggage("the entry was cut")
        data, self.rest = self.rest[:count], self.rest[count:]
        return data

    def name(self) -> str:
        data = self.sized()
        if not 0 < len(data) <= _NAME_BYTES_MAX:
            raise MalformedBaggage("a service without a name")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise MalformedBaggage("a name that is no text") from None


def _entries(header: str) -> list[str]:
    return [entry.strip() for entry in header.split(",") if entry.strip()]


def _is_ours(entry: str) -> bool:
    return entry.partition("=")[0].strip() == _ENTRY


def inject(context: Context, header: str = "") -> str:
    """The header `baggage` with what a process knows beside the entries that are there."""
    own = base64.urlsafe_b64encode(context.encoded()).decode().rstrip("=")
    entries = [entry for entry in _entries(header) if not _is_ours(entry)] + [f"{_ENTRY}={_VERSION}{own}"]
    whole = ",".join(entries)
    if len(whole) > _HEADER_BYTES_MAX or len(entries) > _ENTRIES_MAX:
        raise FullBaggage(f"baggage of {len(whole)} bytes and {len(entries)} entries: room is for {_HEADER_BYTES_MAX} and {_ENTRIES_MAX}")
    return whole


def extract(header: str) -> Context | None:
    """What another process knew, if the header has it."""
    entry = next(filter(_is_ours, _entries(header)), None)
    if entry is None:
        return None
    value = entry.partition("=")[2].partition(";")[0].strip()
    if not value.startswith(_VERSION):
        raise MalformedBaggage("an entry of another version")
    text = value.removeprefix(_VERSION)
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise MalformedBaggage("an entry that is no base64") from None
    if base64.urlsafe_b64encode(data).decode().rstrip("=") != text:
        raise MalformedBaggage("an entry with bits behind its end")
    return Context.decoded(data)


class LinearizableKv:
    """The key-value store without its weaker reads, which would not compose."""

    def __init__(self, kv: Kv) -> None:
        self._kv = kv
        self.put, self.delete, self.increment = kv.put, kv.delete, kv.increment

    async def get(self, key: bytes) -> Any:
        """A linearizable read."""
        return await self._kv.get(key, Level.LINEARIZABLE)


class Process:
    """A process that uses several services of a cluster, one call after the other.

    It runs the fence of the service that it used last before it turns to another one, and carries what it knows to other processes:
    services that are RSS each stay RSS together. The log, the key-value store and the coordination service are linearizable, so
    their fences are empty. `linearizable` names services that are called by other means, as "coordination" by a client of ZooKeeper:
    `turn_to` has to be awaited before each of their calls.
    """

    def __init__(self, client: Client, *, session: TxnSession | None = None, linearizable: Iterable[str] = ()) -> None:
        self._client = client
        self._session = session or client.txn.session()
        self._others = frozenset(linearizable)
        self._last: set[str] = set()

    def _has(self, service: str) -> bool:
        return service in (TXN, LOG, KV) or service in self._others

    async def turn_to(self, service: str) -> None:
        """Runs the fences that have to run before a call of this service. If one raises, the call must not be made."""
        if not self._has(service):
            raise NoSuchService(f"the process has no service {service}")
        for last in sorted(self._last - {service}):
            if last == TXN:
                await self._session.fence()
            self._last.discard(last)
        self._last.add(service)

    async def txn(self) -> TxnSession:
        """Transactions, to be called now."""
        await self.turn_to(TXN)
        return self._session

    async def log(self) -> Log:
        """The shared log, to be called now."""
        await self.turn_to(LOG)
        return self._client.log

    async def kv(self) -> LinearizableKv:
        """The key-value store, to be called now."""
        await self.turn_to(KV)
        return LinearizableKv(self._client.kv)

    def carry(self, header: str = "") -> str:
        """The header `baggage` (W3C) of a message to another process, with the entries that are there already."""
        token = self._session.token
        tokens: dict[str, bytes | int] = {TXN: token.to_bytes(8, "little")} if token else {}
        return inject(Context(set(self._last), tokens), header)

    def receive(self, header: str) -> None:
        """Takes in the header `baggage` of a message from another process; one without our entry changes nothing."""
        context = extract(header)
        if context is None:
            return
        unknown = next((name for name in _in_order(context.last) if not self._has(name)), None)
        if unknown is not None:
            raise NoSuchService(f"the sender used {unknown} last, and the process has no such service")
        token = context.tokens.get(TXN)
        if isinstance(token, bytes):
            if len(token) != 8:
                raise MalformedBaggage("a token of another length")
            self._session.absorb(int.from_bytes(token, "little"))
        self._last |= context.last


_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


class BaggageMiddleware:
    """ASGI: a request's handler finds its process, which knows what the request's sender knew, at `scope["ordinate"]`; what the
    process knows when the answer begins goes back in the answer's header `baggage`. A header that cannot be read is refused (400).
    """

    def __init__(self, app: _App, process: Callable[[], Process]) -> None:
        self._app = app
        self._process = process

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        process = self._process()
        header = ",".join(value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"baggage")
        try:
            process.receive(header)
        except errors.TxnError as error:
            await send({"type": "http.response.start", "status": 400, "headers": [(b"content-type", b"text/plain; charset=utf-8")]})
            await send({"type": "http.response.body", "body": f"baggage: {error}\n".encode()})
            return None
        scope["ordinate"] = process

        async def answer(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                theirs = ",".join(value.decode("latin-1") for name, value in headers if name.lower() == b"baggage")
                others = [(name, value) for name, value in headers if name.lower() != b"baggage"]
                message = {**message, "headers": [*others, (b"baggage", process.carry(theirs).encode("latin-1"))]}
            await send(message)

        return await self._app(scope, receive, answer)
