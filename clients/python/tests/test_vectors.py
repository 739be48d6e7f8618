"""What this client writes and reads is what docs/vectors says."""

from __future__ import annotations

import sys
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from ordinate import errors, fuzzylog, kv, log, process, sequence, txn, wire
from ordinate.calls import Busy

VECTORS = Path(__file__).parents[3] / "docs" / "vectors"
ZURICH = "Zürich".encode()


def vectors(name: str) -> dict[str, bytes]:
    """The vectors of a file by their names."""
    found: dict[str, bytes] = {}
    key, part = "", ""
    for line in (VECTORS / name).read_text().splitlines():
        head, _, rest = line.partition(" ")
        if head in ("name", "meaning", "hex"):
            part = head
            if head == "name":
                key = rest.strip()
        elif line.startswith(" "):
            rest = line
        else:
            continue
        if part == "hex":
            found[key] = found.get(key, b"") + bytes.fromhex(rest)
    return found


def raised(read: Callable[[], Any]) -> type[BaseException]:
    """What reading raises, if it does."""
    try:
        read()
    except Exception as error:  # noqa: BLE001 - the type is what is asked for
        return type(error)
    return type(None)


class Vectors(unittest.TestCase):
    """A client that only agrees with itself talks to nobody."""

    def test_prefaces(self) -> None:
        found = vectors("preface.txt")
        self.assertEqual(found["version-1"], wire.preface(1))
        for name, data in found.items():
            self.assertEqual(wire.read_preface(data)[0], int(name.rpartition("-")[2]))

    def test_frames(self) -> None:
        found = vectors("frames.txt")
        self.assertTrue(found)
        for name, data in found.items():
            length, checksum = wire.read_frame_header(data[: wire.FRAME_HEADER_BYTES])
            messages = wire.read_frame_body(data[wire.FRAME_HEADER_BYTES :], checksum)
            self.assertEqual(len(data) - wire.FRAME_HEADER_BYTES, length, name)
            self.assertEqual(wire.frame(messages), data, name)
            with self.assertRaises(wire.Malformed):
                wire.read_frame_body(data[wire.FRAME_HEADER_BYTES :], checksum ^ 1)

    def test_commands(self) -> None:
        found = vectors("kv-commands.txt")
        written = {
            "put": kv.put_command(b"city", ZURICH),
            "put-empty": kv.put_command(b"city", b""),
            "delete": kv.delete_command(b"city"),
            "set-if-absent": kv.set_if_absent_command(b"city", ZURICH),
            "set-if-version": kv.set_if_version_command(b"city", 9, ZURICH),
        }
        for name, data in written.items():
            self.assertEqual(found[name], data, name)

    def test_answers(self) -> None:
        found = vectors("kv-answers.txt")
        self.assertTrue(found)
        for name, data in found.items():
            reader = wire.Reader(data)
            kv.read_answer(reader)
            self.assertEqual(reader.left, 0, name)
            for length in range(len(data)):
                self.assertIs(raised(lambda: kv.read_answer(wire.Reader(data[:length]))), wire.Malformed, f"{name} truncated at {length}")

    def test_messages(self) -> None:
        found = vectors("messages.txt")
        session = 0x1122334455667788
        self.assertEqual(found["submit-open"], kv.open_message(session))
        commands = [(3, kv.put_command(b"city", ZURICH)), (4, kv.delete_command(b"k"))]
        self.assertEqual(found["submit-execute"], kv.submit_message(session, 3, 6, commands))
        self.assertEqual(found["submit-close"], kv.close_message(session))
        for name, data in found.items():
            if data[:2] == b"\x07\x01":
                kv.read_results(data)

    def test_sequence(self) -> None:
        found = vectors("sequence.txt")
        self.assertEqual(found["next"], sequence.next_message(7, ["orders", "payments"], b"o-17"))

        def read(name: str) -> Any:
            reader = wire.Reader(found[name][2:])
            self.assertEqual(reader.u64(), 7)
            return sequence.read_numbered(reader)

        self.assertEqual(read("done"), sequence.SequencePosition([5, 9], 1200))
        outcomes = {"busy": Busy, "unknown": errors.MaybeExecuted, "malformed": errors.Refused}
        for name, kind in outcomes.items():
            self.assertIs(raised(lambda: read(name)), kind, name)

    def test_log(self) -> None:
        found = vectors("log.txt")
        requests = {
            "create": log.create_request("jobs", 1 << 20, 60_000, "drop-oldest"),
            "append": log.append_request([log.Part("jobs", [b"a", b""]), log.Part("audit", [b"b"], 5)]),
            "trim": log.trim_request("jobs", 9),
            "seal": log.seal_request("jobs"),
            "delete": log.delete_request("jobs"),
            "read": log.read_request("jobs", 9, 100, 1 << 20, 500),
            "stat": log.stat_request("jobs"),
            "list": log.list_request("jobs", 10),
        }
        for name, request in requests.items():
            self.assertEqual(found[name], log.call(7, request), name)

        def read(name: str) -> Any:
            reader = wire.Reader(found[name])
            self.assertEqual((reader.take(2), reader.u64()), (bytes([log.TO_CLIENT, 1]), 7))
            return log.read_answer(reader)

        self.assertIsNone(read("done"))
        self.assertEqual(read("appended"), [3, 5])
        self.assertEqual(read("entries"), log.LogEntries(9, 12, True, [b"a", b""]))
        self.assertEqual(read("logs"), [log.LogStat("jobs", 9, 12, 300, 1 << 20, 60_000, False)])
        with self.assertRaises(errors.Trimmed) as trimmed:
            read("trimmed")
        self.assertEqual((trimmed.exception.name, trimmed.exception.at), ("jobs", 9))
        self.assertIs(raised(lambda: read("busy")), Busy)
        with self.assertRaises(errors.Unarchived) as unarchived:
            read("unarchived")
        self.assertEqual((unarchived.exception.name, unarchived.exception.at), ("jobs", 300))

    SNAPSHOT = "1-2-3@5f:ohio/red=7:ohio:5:tokyo:2~0"

    # A call of the partially ordered log that reads as another one, or a position that is another colour's.
    def test_the_partially_ordered_log(self) -> None:
        found = vectors("fuzzylog.txt")
        seen, later = fuzzylog.SeenTime(1_000, 2, 1), fuzzylog.SeenTime(1_001, 0, 0)
        by, both = (0x1122_3344_5566_7788, 4, 3), ["red", "blue"]
        nodes = [fuzzylog.NewNode(both, [b"both"]), fuzzylog.NewNode(both, [b"r", b"b"])]
        written = {
            "append": fuzzylog.append_message(7, seen, by, nodes),
            "sync": fuzzylog.sync_message(7, seen, "red", 5, 0),
            "sync-waiting": fuzzylog.sync_message(7, seen, "red", 5, 1_000),
            "play": fuzzylog.play_message(7, "red", 5, 9),
            "snapshot": fuzzylog.snapshot_message(7, seen, by, both),
            "trim": fuzzylog.trim_message(7, "red", 5),
            "append-played": fuzzylog.append_played_message(7, seen, by, nodes[:1], [[5, 2]]),
            "name-snapshot": fuzzylog.name_message(7, seen, {"red": 5, "blue": 2}),
            "await-snapshot": fuzzylog.await_message(7, self.SNAPSHOT, 1_000),
            "trim-seen": fuzzylog.trim_seen_message(7, seen, "red", 5),
        }
        for name, message in written.items():
            self.assertEqual(message, found[name], name)

        def read(name: str) -> object:
            reader = wire.Reader(found[name])
            tag, variant = reader.u8(), reader.u8()
            self.assertEqual((tag, reader.u64()), (fuzzylog.TO_CLIENT, 7))
            reply = fuzzylog.read_reply(variant, reader)
            self.assertEqual(reader.left, 0)
            return reply

        self.assertEqual(read("appended"), (later, [(seen, [5, 0]), (later, [6, 1])]))
        node = fuzzylog.FuzzyNode(5, seen, ("blue", "red"), b"both")
        self.assertEqual(read("played"), fuzzylog.NodesPage(later, 5, 9, [node, fuzzylog.FuzzyNode(6, later, (), b"")]))
        self.assertEqual(read("snapshot-taken"), (later, later, [7, 2]))
        self.assertEqual(read("trimmed"), 5)
        across = fuzzylog.NodesPage(later, 5, 9, [fuzzylog.FuzzyNode(5, seen, ("red",), b"one")], "tokyo")
        self.assertEqual(read("played-across"), across)
        self.assertEqual(read("snapshot-named"), self.SNAPSHOT)
        self.assertEqual(read("snapshot-is-here"), (later, [7], self.SNAPSHOT))
        for name, kind in {"otherregion": errors.OtherRegion, "nothere": errors.NotHere, "nosnapshot": errors.FuzzyMalformed,
                           "fromthefuture": errors.FuzzyMalformed, "nopartition": errors.FuzzyMalformed,
                           "full": errors.FuzzyFull, "diskfull": errors.FuzzyDiskFull, "forgotten": errors.FuzzyForgotten,
                           "numberused": errors.FuzzyNumberUsed, "malformed": errors.FuzzyMalformed,
                           "notgranted": errors.NotGranted}.items():
            with self.assertRaises(kind):
                read(f"failed-{name}")
        with self.assertRaises(errors.AlreadyTrimmed) as trimmed:
            read("failed-trimmed")
        self.assertEqual(trimmed.exception.first, 9)
        for name in ("busy", "unknown", "noclock"):
            with self.assertRaises(Busy):
                read(f"failed-{name}")
        one = fuzzylog.SnapshotId.parse("3e8-2-1/a=b=7,blue/x=9")
        self.assertEqual((str(one), one.seen, one.tail("a=b")), ("3e8-2-1/a=b=7,blue/x=9", seen, 7))
        self.assertTrue(one.join(fuzzylog.SnapshotId(later, {"c": 1})).subsumes(one))

    def test_transactions(self) -> None:
        found = vectors("txn.txt")
        key = (0x1122334455667788, 4)
        scan = txn.Scan(prefix=b"p/", limit=100)
        writes = {b"a": b"1", b"b": None}
        levels = {
            "read-strict": txn.STRICT,
            "read-rss": txn.RSS,
            "read-process-ordered": txn.PROCESS_ORDERED,
            "read-at": txn.TxnLevel.at(900),
            "read-stale": txn.TxnLevel.stale(2.0),
        }
        written = {name: txn.read_only_message(7, 1_000, level, [b"a"], [scan]) for name, level in levels.items()}
        written |= {
            "one-shot": txn.one_shot_message(7, 1_000, key, 3, {b"a": 17}, writes, [b"c"], [b"a"]),
            "begin": txn.begin_message(7, 1_000, None),
            "begin-again": txn.begin_message(7, 1_000, 800),
            "read-within": txn.read_within_message(7, 5, [b"a"], [scan]),
            "commit": txn.commit_message(7, 5, key, 3, writes),
            "give-up": txn.give_up_message(5),
            "fence": txn.fence_message(7, 1_000),
            "status": txn.status_message(7, key),
        }
        for name, data in written.items():
            self.assertEqual(found[name], data, name)

        def read(name: str) -> Any:
            reader = wire.Reader(found[name])
            (tag, variant) = reader.take(2)
            self.assertEqual((tag, reader.u64()), (txn.TO_CLIENT, 7))
            reply = txn.read_reply(reader, variant)
            self.assertEqual(reader.left, 0, name)
            return reply

        rows = [txn.TxnRow(b"a", b"1", 17), txn.TxnRow(b"c", None, 0)]
        self.assertEqual(read("read-rows"), {"token": 1_200, "at": 1_200, "rows": rows, "scans": [txn.Scanned(rows, b"p/7")]})
        self.assertEqual(read("committed"), {"token": 1_200, "at": 1_200, "rows": rows})
        self.assertEqual(read("not-met"), {"token": 1_000, "condition": 0, "rows": rows})
        self.assertEqual(read("begun"), {"priority": 800})
        self.assertEqual(read("fate"), {"committed": 1_200})
        failed = [name for name in found if name.startswith("failed-")]
        self.assertEqual(len(failed), 11)
        for name in failed:
            self.assertTrue(issubclass(raised(lambda name=name: read(name)), (errors.TxnError, errors.NotGranted)), name)
        self.assertIs(raised(lambda: read("failed-unknown")), errors.CommitUnknown)



class Fences:
    """A session of transactions that counts its fences."""

    def __init__(self) -> None:
        self.token, self.fences, self.fails = 0, 0, False

    def absorb(self, token: int) -> None:
        self.token = max(self.token, token)

    async def fence(self) -> None:
        if self.fails:
            raise errors.Unavailable("nobody answers")
        self.fences += 1


class Services:
    """What a process needs of a client."""

    log = kv = None


def a_process(session: Fences, **others: Any) -> process.Process:
    """A process whose session counts its fences."""
    made: Any = process.Process
    return made(Services(), session=session, **others)


class Baggage(unittest.IsolatedAsyncioTestCase):
    """What a process knows has to arrive at processes of other languages, and a fence must not be left out."""

    def test_headers(self) -> None:
        found = {name: data.decode() for name, data in vectors("baggage.txt").items()}
        seen = (1_792_000_000_123_456).to_bytes(8, "little")
        contexts = {
            "nothing": process.Context(),
            "txn": process.Context({"txn"}, {"txn": seen}),
            "log": process.Context({"log"}, {"txn": seen}),
            "several": process.Context({"txn", "coordination"}, {"txn": seen, "queue": 300}),
        }
        self.assertEqual(found.keys(), contexts.keys())
        for name, header in found.items():
            self.assertEqual(process.extract(header), contexts[name], name)
            before = "tenant=7;p=1, trace=a%20b" if name == "several" else ""
            self.assertEqual(process.inject(contexts[name], before), header)
            self.assertEqual(process.inject(contexts[name], header), header, "the old entry goes")
        self.assertIsNone(process.extract("tenant=7"))
        header = found["several"]
        for cut in range(header.index("ordinate=") + len("ordinate="), len(header)):
            self.assertRaises(process.MalformedBaggage, process.extract, header[:cut])
        self.assertRaises(process.FullBaggage, process.inject, process.Context(), "other=" + "x" * 8186)

    async def test_fences(self) -> None:
        session = Fences()
        one = a_process(session, linearizable=["coordination"])
        await one.log()
        await one.turn_to("coordination")
        await one.txn()
        await one.txn()
        self.assertEqual(session.fences, 0, "the log and coordination are linearizable")
        await one.log()
        self.assertEqual(session.fences, 1)
        await one.txn()
        session.fails = True
        for _ in range(2):
            with self.assertRaises(errors.Unavailable):
                await one.log()
        await one.txn()
        with self.assertRaises(process.NoSuchService):
            await one.turn_to("queue")

    async def test_messages(self) -> None:
        sender, receiver = Fences(), Fences()
        sender.token = 77
        one, other = a_process(sender), a_process(receiver)
        await one.txn()
        other.receive(one.carry())
        self.assertEqual((receiver.token, receiver.fences), (77, 0))
        await other.log()
        self.assertEqual(receiver.fences, 1, "the sender used transactions last")
        other.receive("other=1")
        self.assertRaises(process.MalformedBaggage, other.receive, "ordinate=v1.!!")
        self.assertRaises(process.NoSuchService, a_process(Fences()).receive, process.inject(process.Context({"queue"})))

    async def test_middleware(self) -> None:
        session, answers = Fences(), []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await scope["ordinate"].log()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"baggage", b"tenant=7")]})
            await send({"type": "http.response.body", "body": b"done"})

        async def send(message: Any) -> None:
            answers.append(message)

        async def receive() -> Any:
            return {}

        served = process.BaggageMiddleware(app, lambda: a_process(session))
        header = process.inject(process.Context({"txn"}, {"txn": (99).to_bytes(8, "little")}))
        await served({"type": "http", "headers": [(b"baggage", header.encode())]}, receive, send)
        self.assertEqual((session.token, session.fences), (99, 1))
        sent = dict(answers[0]["headers"])[b"baggage"].decode()
        self.assertTrue(sent.startswith("tenant=7,ordinate=v1."), sent)
        context = process.extract(sent)
        assert context is not None
        self.assertEqual(context.last, {"log"})
        answers.clear()
        await served({"type": "http", "headers": [(b"baggage", b"ordinate=v1.!!")]}, receive, send)
        self.assertEqual(answers[0]["status"], 400)


if __name__ == "__main__":
    unittest.main()
