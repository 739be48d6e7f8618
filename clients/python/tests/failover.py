"""Writes while hosts die, until its standard input ends; then what was acknowledged must be there.

usage: failover.py ENDPOINTS. Prints how many writes were acknowledged, so that its caller can kill hosts meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import ordinate

WRITERS = 8


async def main(endpoints: list[str]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, stop.set)
    appended: dict[int, bytes] = {}
    unsure: set[bytes] = set()
    counted = 0
    async with ordinate.Client(endpoints, timeout=20.0) as client:
        await client.log.create("failover")

        async def append(writer: int) -> None:
            turn = 0
            while not stop.is_set():
                entry = b"%d.%d" % (writer, turn)
                turn += 1
                try:
                    appended[await client.log.append("failover", [entry])] = entry
                except (ordinate.MaybeExecuted, ordinate.TimedOut):
                    unsure.add(entry)
                if len(appended) % 50 == 0:
                    print(f"acknowledged {len(appended) + counted}", flush=True)

        async def count() -> None:
            nonlocal counted
            while not stop.is_set():
                await client.kv.increment(b"failover")
                counted += 1

        await asyncio.gather(count(), *(append(writer) for writer in range(WRITERS)))
        entries = [entry async for _, entry in client.log.tail("failover", 0, follow=False)]
        for position, entry in appended.items():
            if entries[position] != entry:
                sys.exit(f"position {position} is {entries[position]!r}, and not {entry!r}")
        strange = set(entries) - set(appended.values()) - unsure
        if strange or len(entries) != len(set(entries)):
            sys.exit(f"{len(entries)} entries, {len(set(entries))} different, {strange} of nobody")
        found = await client.kv.get(b"failover")
        if found is None or int(found.value) != counted:
            sys.exit(f"counted to {counted}, found {found}: a command was executed twice, or not at all")
        print(f"{len(appended)} appends and {counted} increments acknowledged, {len(unsure)} appends unsure")


asyncio.run(main(sys.argv[1].split(",")))
