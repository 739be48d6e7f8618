"""Calls that reach nobody: no cluster is needed."""

from __future__ import annotations

import socket
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import ordinate


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


if __name__ == "__main__":
    unittest.main()
