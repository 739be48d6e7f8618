"""One connection at a time, to one host after the other."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from . import wire
from .suspicion import Suspicion

#: A dial that takes longer is given up for the next endpoint; twice as long after each round of all endpoints.
DIAL_WITHIN = 0.5
DIAL_WITHIN_MAX = 5.0
#: The pause after all endpoints have failed, twice as long each time.
DIAL_AGAIN_AFTER = 0.02
DIAL_AGAIN_AFTER_MAX = 0.5
#: What one frame may hold: a host takes 2 MiB.
FRAME_BYTES = 1 << 20


def tls_context(ca: str, cert: str, key: str) -> ssl.SSLContext:
    """TLS 1.3 with certificates of both sides, from PEM files as `ordinate tls init` makes them."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(cert, key)
    return context


class _Farewell(Exception):
    """What a host says before it closes a connection on which a service was called that it does not have."""


class Link:
    """Dials when it is first wanted, and again when the connection breaks.

    `on_up` may send what waits; `on_down` learns that answers to what was sent before will not come; `on_message` gets each message;
    `on_off` learns that the cluster does not have the service, in the host's words.
    """

    def __init__(
        self,
        endpoints: list[str],
        tls: ssl.SSLContext | None,
        token: str,
        on_message: Callable[[bytes], None],
        on_up: Callable[[], None],
        on_down: Callable[[], None],
        on_off: Callable[[str], None],
    ) -> None:
        if not endpoints:
            raise ValueError("a client needs an endpoint, like 127.0.0.1:7071")
        self._endpoints = endpoints
        self._tls = tls
        self._token = token
        self._on_message = on_message
        self._on_up = on_up
        self._on_down = on_down
        self._on_off = on_off
        self._at = 0
        self._failures = 0
        self._task: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._out: list[bytes] = []
        self._more = asyncio.Event()
        #: Of the host that the connection leads to.
        self.suspicion = Suspicion(self._greet, self.turn)
        #: What hosts have said that turned the client away, by endpoint.
        self.refusals: dict[str, str] = {}

    @property
    def is_up(self) -> bool:
        return self._writer is not None

    def want(self) -> None:
        """Dials, unless that is in progress."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def send(self, message: bytes) -> None:
        """Sends a message, together with others that come before the next turn of the loop; only while it is up."""
        self._out.append(message)
        self._more.set()

    def turn(self) -> None:
        """Gives this host up for the next one."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def close(self) -> None:
        self.suspicion.stop()
        if self._task is not None:
            self._task.cancel()
            try:
                await self._task
            except asyncio.CancelledError:
                pass

    async def _run(self) -> None:
        while True:
            endpoint = self._endpoints[self._at % len(self._endpoints)]
            self._at += 1
            rounds = min(self._failures // len(self._endpoints), 16)
            try:
                within = min(DIAL_WITHIN * 2**rounds, DIAL_WITHIN_MAX)
                # Not `wait_for`, which takes no notice of being cancelled when the dial is just done (Python 3.11).
                async with asyncio.timeout(within):
                    reader, writer = await self._dial(endpoint)
            except (OSError, EOFError, wire.Malformed):
                self._failures += 1
                if self._failures % len(self._endpoints) == 0:
                    await asyncio.sleep(min(DIAL_AGAIN_AFTER * 2**rounds, DIAL_AGAIN_AFTER_MAX))
                continue
            self._writer = writer
            writing = asyncio.create_task(self._write(writer))
            try:
                self._on_up()
                await self._read(reader)
            except _Farewell as farewell:
                self._failures += 1
                self._on_off(str(farewell))
            except (OSError, EOFError, wire.Malformed):
                self._failures += 1
            finally:
                writing.cancel()
                self._writer = None
                self.suspicion.forget()
                self._out.clear()
                writer.transport.abort()
                self._on_down()
            if self._failures and self._failures % len(self._endpoints) == 0:
                await asyncio.sleep(DIAL_AGAIN_AFTER)

    async def _greet(self) -> None:
        """Another connection to the host that the last one leads to."""
        try:
            _, writer = await self._dial(self._endpoints[(self._at - 1) % len(self._endpoints)])
        except wire.Malformed:
            # One that turns the client away does not hang.
            return
        writer.transport.abort()

    async def _dial(self, endpoint: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name, _, port = endpoint.rpartition(":")
        name = name.strip("[]")
        hostname = name if self._tls is not None else None
        reader, writer = await asyncio.open_connection(
            name, int(port), ssl=self._tls, server_hostname=hostname, limit=1 << 20
        )
        try:
            writer.write(wire.preface(wire.VERSION, self._token))
            version, last = wire.read_preface(await reader.readexactly(wire.PREFACE_BYTES))
            if version == 0:
                self.refusals[endpoint] = await self._read_refusal(reader, last)
                raise wire.Malformed("the host turned us away")
        except BaseException:
            writer.transport.abort()
            raise
        self.refusals.pop(endpoint, None)
        return reader, writer

    async def _read_refusal(self, reader: asyncio.StreamReader, length: int) -> str:
        why = await reader.readexactly(min(length, wire.REFUSAL_BYTES_MAX))
        return why.decode(errors="replace")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            header = await reader.readexactly(wire.FRAME_HEADER_BYTES)
            if wire.begins_as_preface(header):
                version, last = wire.read_preface(header + await reader.readexactly(wire.PREFACE_BYTES - len(header)))
                if version == 0:
                    raise _Farewell(await self._read_refusal(reader, last))
                raise wire.Malformed("a preface amid frames")
            length, checksum = wire.read_frame_header(header)
            body = await reader.readexactly(length)
            self._failures = 0
            for message in wire.read_frame_body(body, checksum):
                self._on_message(message)

    async def _write(self, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await self._more.wait()
                self._more.clear()
                while self._out:
                    taken, size = 0, 0
                    while taken < len(self._out) and (taken == 0 or size + len(self._out[taken]) <= FRAME_BYTES):
                        size += len(self._out[taken])
                        taken += 1
                    messages = self._out[:taken]
                    del self._out[:taken]
                    writer.write(wire.frame(messages))
                    await writer.drain()
        except OSError:
            writer.transport.abort()


class Window:
    """Bounds what is in flight, by calls and by bytes; a call that does not fit waits, in order."""

    def __init__(self, calls_max: int, bytes_max: int) -> None:
        self._calls_left = calls_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def enter(self, size: int) -> None:
        if not self._waiting and self._fits(size):
            return self._take(size)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if (size, turn) in self._waiting:
                self._waiting.remove((size, turn))
            elif turn.done() and not turn.cancelled():
                self.leave(size)
            raise

    def leave(self, size: int) -> None:
        self._calls_left += 1
        self._bytes -= size
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.pop(0)
            if not turn.done():
                self._take(size)
                turn.set_result(None)

    def _fits(self, size: int) -> bool:
        return self._calls_left > 0 and (self._bytes == 0 or self._bytes + size <= self._bytes_max)

    def _take(self, size: int) -> None:
        self._calls_left -= 1
        self._bytes += size
