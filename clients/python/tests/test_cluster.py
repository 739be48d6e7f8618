"""Against a running cluster: `ORDINATE_ENDPOINTS` has its native addresses; without it these tests are skipped."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import ordinate

ENDPOINTS = [endpoint for endpoint in os.environ.get("ORDINATE_ENDPOINTS", "").split(",") if endpoint]
TLS = os.environ.get("ORDINATE_TLS")


def client(**settings: int) -> ordinate.Client:
    tls = None
    if TLS:
        tls = ordinate.tls_context(f"{TLS}/ca.pem", f"{TLS}/client.pem", f"{TLS}/client.key")
    return ordinate.Client(ENDPOINTS, tls=tls, timeout=30.0, **settings)


@unittest.skipUnless(ENDPOINTS, "ORDINATE_ENDPOINTS names no cluster")
class Cluster(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        asyncio.get_running_loop().set_debug(False)
        self.client = client()
        self.name = f"python-{secrets.token_hex(4)}"

    async def asyncTearDown(self) -> None:
        await self.client.close()

    # A write that another level of reading does not see is lost to those who read so.
    async def test_the_store_keeps_what_is_written(self) -> None:
        kv, key = self.client.kv, self.name.encode()
        version = await kv.put(key, b"one")
        for level in (ordinate.Level.LINEARIZABLE, ordinate.Level.SEQUENTIAL):
            self.assertEqual(await kv.get(key, level), ordinate.Versioned(version, b"one"))
        await kv.get(key, ordinate.Level.EVENTUAL)
        self.assertEqual(await kv.cas(key, version + 1, b"two"), ordinate.Mismatch(ordinate.Versioned(version, b"one")))
        written = await kv.cas(key, version, b"2")
        self.assertIsInstance(written, ordinate.Written)
        self.assertEqual(await kv.increment(key, 5), 7)
        with self.assertRaises(ordinate.Invalid):
            await kv.put(key, b"none")
            await kv.increment(key, 1)
        self.assertEqual(await kv.get_many([key, key + b"?"]), [await kv.get(key), None])
        many = [key + b"/%03d" % number for number in range(300)]
        await asyncio.gather(*(kv.put(each, b"x" * 1000) for each in many))
        page = await kv.scan(key + b"/", key + b"0", 200)
        self.assertEqual([item.key for item in page.items], many[:200])
        self.assertIsNotNone(page.next)
        self.assertTrue(await kv.delete(key))
        self.assertFalse(await kv.delete(key))

    # A transaction that is half done, or a session that does not see what it has seen.
    async def test_transactions_are_whole(self) -> None:
        session, base = self.client.txn, self.name.encode()
        accounts = [base + b"/%d" % number for number in range(6)]
        made = await session.one_shot(dict.fromkeys(accounts, b"100"), conditions={accounts[0]: 0})
        self.assertIsNotNone(made.committed)
        again = await session.one_shot({accounts[0]: b"0"}, conditions={accounts[0]: 0}, otherwise=[accounts[0]])
        self.assertEqual((again.committed, again.condition, again.rows[0].value), (None, 0, b"100"))
        self.assertEqual(await session.status(made.id), made.committed)

        async def move(session: ordinate.TxnSession, source: bytes, target: bytes) -> None:
            async def body(txn: ordinate.Transaction) -> None:
                held, other = await txn.rows([source, target])
                txn.put(source, b"%d" % (int(held.value or b"0") - 1))
                txn.put(target, b"%d" % (int(other.value or b"0") + 1))
                self.assertEqual(await txn.get(source), b"%d" % (int(held.value or b"0") - 1))

            await session.transaction(body)

        async def mover(number: int) -> None:
            own = session.session()
            for turn in range(10):
                await move(own, accounts[(number + turn) % 6], accounts[(number + turn + 1 + turn % 4) % 6])

        await asyncio.gather(*(mover(number) for number in range(4)))
        levels = [ordinate.STRICT, ordinate.RSS, ordinate.PROCESS_ORDERED, ordinate.TxnLevel.at(session.token)]
        for level in levels:
            found = await session.read(scans=[ordinate.Scan(prefix=base + b"/")], level=level)
            self.assertEqual(sum(int(row.value or b"0") for row in found.scans[0].rows), 600, level.name)
        other = client()
        try:
            other.txn.absorb(session.token)
            found = await other.txn.read([accounts[0]], level=ordinate.PROCESS_ORDERED)
            self.assertIsNotNone(found.rows[0].value)
        finally:
            await other.close()
        await session.fence()

        class Given(Exception):
            pass

        async def fails(txn: ordinate.Transaction) -> None:
            txn.delete(accounts[0])
            scanned = await txn.scan(ordinate.Scan(prefix=base + b"/", limit=3))
            self.assertEqual([row.key for row in scanned.rows], accounts[1:3])
            raise Given

        with self.assertRaises(Given):
            await session.transaction(fails)
        self.assertIsNotNone((await session.read([accounts[0]])).rows[0].value)
        with self.assertRaises(ordinate.TxnMalformed):
            await session.one_shot({b"": b"no key"})
        large = {b"%d" % number: b"x" * 900_000 for number in range(3)}
        with self.assertRaisesRegex(ordinate.TxnMalformed, "2700003/2097152"):
            await session.one_shot(large)

        async def writes_too_much(txn: ordinate.Transaction) -> None:
            txn.writes.update(large)

        with self.assertRaisesRegex(ordinate.TxnMalformed, "2700003/2097152"):
            await session.transaction(writes_too_much)
        with self.assertRaises(ordinate.FromTheFuture):
            await session.read([b"a"], level=ordinate.TxnLevel.at((1 << 53) - 1))

    # A node that is in one colour and not in the other, twice or never; a snapshot that nobody can go on from.
    async def test_colours_have_what_was_appended(self) -> None:
        session, red, blue = self.client.fuzzylog, self.name + "-red", self.name + "-blue"
        first = await session.append([red, blue], b"both")
        self.assertEqual(first.positions, {red: 0, blue: 0})
        nodes = [ordinate.NewNode([red], [b"%d" % number]) for number in range(200)]
        await session.append_each({red: b"r", blue: b"b"})
        placed = await session.append_all(nodes)
        self.assertEqual(sorted(node.positions[red] for node in placed), list(range(2, 202)))
        played: list[ordinate.FuzzyNode] = []
        instance = session.new_instance(red)
        snapshot = await instance.sync(played.append)
        self.assertEqual([node.position for node in played], list(range(202)))
        self.assertEqual((played[0].body, played[0].at, played[1].body), (b"both", first.at, b"r"))
        self.assertEqual(ordinate.SnapshotId.parse(str(snapshot)), snapshot)
        both = await session.snapshot([red, blue])
        self.assertEqual((both.tail(red), both.tail(blue)), (202, 2))
        other = session.session()
        other.absorb(session.seen)
        follower = asyncio.create_task(other.new_instance(red, snapshot).play(wait=20.0))
        await asyncio.sleep(0.1)
        await session.append_after([red], b"last", [both])
        self.assertEqual([node.body for node in await follower], [b"last"])
        await instance.trim(snapshot)
        with self.assertRaises(ordinate.AlreadyTrimmed) as trimmed:
            await session.new_instance(red).sync(played.append)
        self.assertEqual(trimmed.exception.first, 202)
        with self.assertRaises(ordinate.BeyondColour):
            await session.trim(ordinate.SnapshotId(both.seen, {blue: 9}))
        with self.assertRaises(ordinate.FuzzyMalformed):
            await session.append([red, red], b"twice")
        await asyncio.gather(*(session.append([blue], b"%d" % number) for number in range(1_500)))
        self.assertEqual((await session.snapshot([blue])).tail(blue), 1_502)

    # An entry lost, doubled or out of order, or a refusal that does not say how to go on.
    async def test_a_log_is_what_was_appended(self) -> None:
        log, other = self.client.log, self.name + "-b"
        await log.create(self.name, 1 << 20)
        await log.create(other, 1 << 20)
        with self.assertRaises(ordinate.Exists):
            await log.create(self.name)
        firsts = await asyncio.gather(*(log.append(self.name, [b"%d" % turn, b""]) for turn in range(200)))
        self.assertEqual(list(firsts), list(range(0, 400, 2)), "appends keep the order of their calls")
        self.assertEqual(await log.append_to_all(ordinate.by_log({self.name: [b"x"], other: [b"y", b"z"]})), [400, 0])
        with self.assertRaises(ordinate.Moved) as moved:
            await log.append(self.name, [b"late"], expect=400)
        self.assertEqual(moved.exception.at, 401)
        page = await log.read(self.name, 398, 2)
        self.assertEqual((page.first, page.next, page.tail, page.entries), (398, 400, 401, [b"199", b""]))
        await log.trim(self.name, 10)
        with self.assertRaises(ordinate.Trimmed) as trimmed:
            await log.read(self.name, 9)
        self.assertEqual(trimmed.exception.at, 10)
        stat = await log.stat(self.name)
        self.assertEqual((stat.first, stat.tail, stat.sealed), (10, 401, False))
        self.assertIn(self.name, [each.name for each in await log.list()])

        async def follow() -> list[bytes]:
            return [entry async for _, entry in log.tail(self.name, 400)]

        following = asyncio.create_task(follow())
        await log.append(self.name, [b"last"])
        await log.seal(self.name)
        self.assertEqual(await asyncio.wait_for(following, 30), [b"x", b"last"])
        with self.assertRaises(ordinate.Sealed):
            await log.append(self.name, [b"more"])
        for name in (self.name, other):
            await log.delete(name)
        with self.assertRaises(ordinate.NoSuchLog):
            await log.stat(self.name)

    # Two callers with one number, or a number that nobody has.
    async def test_positions_are_contiguous(self) -> None:
        positions = await asyncio.gather(*(self.client.sequence.next(["orders", "payments"]) for _ in range(100)))
        numbers = sorted(position.numbers[0] for position in positions)
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + 100)))
        self.assertEqual(len({position.gsn for position in positions}), 100)
        with self.assertRaises(ordinate.Refused):
            await self.client.sequence.next(["nosuch"])

    # A program that asks faster than the cluster answers must be slowed down, not grow.
    async def test_what_is_in_flight_is_bounded(self) -> None:
        async with client(outstanding_max=4, outstanding_bytes_max=3_000) as narrow:
            keys = [f"{self.name}/{number}".encode() for number in range(100)]
            await asyncio.gather(*(narrow.kv.put(key, b"x" * 1000) for key in keys))
            page = await narrow.kv.scan(self.name.encode() + b"/", self.name.encode() + b"0")
            self.assertEqual(len(page.items), 100)

    # A caller who gives up must not leave its position taken.
    async def test_calls_can_be_cancelled(self) -> None:
        async with client(outstanding_max=1) as narrow:
            for _ in range(5):
                reading = asyncio.create_task(narrow.kv.get(b"k"))
                await asyncio.sleep(0)
                reading.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await reading
            await narrow.kv.get(b"k")


if __name__ == "__main__":
    unittest.main()
