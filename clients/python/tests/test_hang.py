"""A host that hangs: no cluster is needed."""

from __future__ import annotations

import asyncio
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import ordinate
from ordinate import wire
from ordinate.link import Link
from ordinate.suspicion import Suspicion

TIMEOUT = 8.0


class Host:
    """Greets those who connect, and answers nothing; from the first message on it hangs."""

    def __init__(self) -> None:
        self.hangs = False
        self.greeted = 0

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return "127.0.0.1:%d" % self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readexactly(wire.PREFACE_BYTES)
            if self.hangs:
                await reader.read()
                return
            self.greeted += 1
            writer.write(wire.preface(wire.VERSION, ""))
            while await reader.read(1 << 16):
                self.hangs = self.wants_to_hang
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.transport.abort()

    wants_to_hang = True


class Hang(unittest.IsolatedAsyncioTestCase):
    async def greeted(self, hangs: bool) -> tuple[int, int, float]:
        hosts = [Host(), Host()]
        for host in hosts:
            host.wants_to_hang = hangs
        endpoints = [await host.start() for host in hosts]
        client = ordinate.Client(endpoints, timeout=TIMEOUT)
        begun = time.monotonic()
        call = asyncio.ensure_future(client.txn.read([b"key"]))
        try:
            while time.monotonic() < begun + 4 and hosts[1].greeted == 0:
                await asyncio.sleep(0.02)
            return hosts[0].greeted, hosts[1].greeted, time.monotonic() - begun
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await client.close()

    # A connection to a host that hangs stays open: all calls would wait there until they time out.
    async def test_another_host_is_asked_when_one_hangs(self) -> None:
        _, other, took = await self.greeted(hangs=True)
        self.assertEqual(other, 1)
        self.assertLess(took, 3.0)

    # One that is only slow is waited for: what may be executed twice must not be sent twice.
    async def test_a_slow_host_is_waited_for(self) -> None:
        first, other, _ = await self.greeted(hangs=False)
        self.assertGreater(first, 1)
        self.assertEqual(other, 0)


class Closing(unittest.IsolatedAsyncioTestCase):
    # A close that comes in the turn of the loop in which the dial is done would wait for ever.
    async def test_a_link_closes_at_any_turn_of_a_dial(self) -> None:
        for turns in range(8):
            host = Host()
            link = Link([await host.start()], None, "", lambda _: None, lambda: None, lambda: None, lambda _: None)
            dialled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            streams = await link._dial(link._endpoints[0])

            async def dial(_: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
                await dialled
                return streams

            link._dial = dial  # type: ignore[method-assign]
            link.want()
            await asyncio.sleep(0.01)
            dialled.set_result(None)
            for _ in range(turns):
                await asyncio.sleep(0)
            closing = asyncio.ensure_future(link.close())
            done, _ = await asyncio.wait([closing], timeout=5)
            streams[1].transport.abort()
            self.assertTrue(done, f"closed {turns} turns behind the dial")

    # The same of a greeting: it would go on, and give up the next host.
    async def test_a_suspicion_stops_at_any_turn_of_a_greeting(self) -> None:
        for turns in range(8):
            greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            async def greet() -> None:
                await greeted

            suspicion = Suspicion(greet, lambda: None)
            suspicion._begin()
            await asyncio.sleep(0.01)
            greeted.set_result(None)
            for _ in range(turns):
                await asyncio.sleep(0)
            suspicion.stop()
            await asyncio.sleep(0.01)
            self.assertIsNone(suspicion._timer, f"stopped {turns} turns behind the greeting")


if __name__ == "__main__":
    unittest.main()
