"""Calls that reach nobody: no cluster is needed."""

from __future__ import annotations

import asyncio
import socket
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import ordinate
from ordinate import wire


def unused_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


class Unreached(unittest.IsolatedAsyncioTestCase):
    # A write that "may have been executed" is looked for, and cannot be there.
    async def test_what_was_sent_to_no_host_was_not_executed(self) -> None:
        client = ordinate.Client([f"127.0.0.1:{unused_port()}"], timeout=0.3)
        try:
            calls = [client.kv.put(b"k", b"v"), client.log.append("jobs", [b"entry"]), client.fuzzylog.append(["red"], b"node")]
            for call in calls:
                with self.assertRaises(ordinate.NotSent) as raised:
                    await call
                self.assertIn("nothing was executed", str(raised.exception))
        finally:
            await client.close()

    # A caller that waits its whole time, and is then left in doubt, looks for a fault where the cluster only lacks the service.
    async def test_a_service_that_the_cluster_does_not_have_is_named_at_once(self) -> None:
        why = b"call of the log, which is off"

        async def turn_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(wire.PREFACE_BYTES)
            writer.write(wire.preface(wire.VERSION))
            try:
                await reader.readexactly(wire.FRAME_HEADER_BYTES)
            except EOFError:
                return writer.close()
            farewell = b"ORDINATE" + wire.u32(0) + wire.u32(len(why)) + why
            # In two parts, as a network may bring it.
            writer.write(farewell[:11])
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.write(farewell[11:])
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(turn_away, "127.0.0.1", 0)
        host = "127.0.0.1:%d" % server.sockets[0].getsockname()[1]
        client = ordinate.Client([host], timeout=60.0)
        try:
            calls = [
                client.kv.put(b"k", b"v"),
                client.kv.get(b"k"),
                client.log.append("jobs", [b"entry"]),
                client.sequence.next("orders"),
                client.fuzzylog.append(["red"], b"node"),
                client.txn.one_shot({b"k": b"v"}),
            ]
            async with asyncio.timeout(10):
                for call in calls:
                    with self.assertRaises(ordinate.ServiceOff) as raised:
                        await call
                    self.assertIn(why.decode(), str(raised.exception))
        finally:
            await client.close()
            server.close()


if __name__ == "__main__":
    unittest.main()
