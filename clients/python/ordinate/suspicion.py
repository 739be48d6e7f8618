"""Whether a host that owes answers hangs: it is greeted on a connection of its own, which one that hangs does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

#: A host that owes an answer and says nothing for so long is greeted, and again after twice as long.
GREET_AFTER = 0.5
GREET_AFTER_MAX = 8.0
#: How long it may take to answer a greeting.
GREET_WITHIN = 1.0


class Suspicion:
    """What is suspected of the host at the other end of a connection."""

    def __init__(self, greet: Callable[[], Awaitable[None]], give_up: Callable[[], None]) -> None:
        #: Raises `OSError` or `EOFError` where nobody answers.
        self._greet = greet
        self._give_up = give_up
        self._pause = GREET_AFTER
        #: It was greeted since it was heard last.
        self._was_greeted = False
        self._timer: asyncio.TimerHandle | None = None
        self._greeting: asyncio.Task[None] | None = None

    def expect(self, wait: float) -> None:
        """The host owes an answer that it may take so long for."""
        loop = asyncio.get_running_loop()
        at = loop.time() + self._pause + wait
        if self._greeting is None and (self._timer is None or at < self._timer.when()):
            self._look_at(at)

    def heard(self, wait: float | None) -> None:
        """The host has said something, and may take so long for the first of what it still owes; none: it owes nothing."""
        self.stop()
        if not self._was_greeted:
            # One that is slow for long is greeted seldom: thousands of clients would be a load of their own.
            self._pause = max(self._pause * 7 / 8, GREET_AFTER)
        self._was_greeted = False
        if wait is not None:
            self.expect(wait)

    def forget(self) -> None:
        """The connection is gone, and the next one leads to another host."""
        self.stop()
        self._pause, self._was_greeted = GREET_AFTER, False

    def stop(self) -> None:
        """Nothing is expected any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._greeting is not None:
            self._greeting.cancel()
        self._timer = self._greeting = None

    def _look_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._greeting = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(GREET_WITHIN):
                await self._greet()
        except (OSError, EOFError):
            self._greeting = None
            self._give_up()
            return
        self._greeting = None
        self._was_greeted = True
        self._pause = min(2 * self._pause, GREET_AFTER_MAX)
        self._look_at(asyncio.get_running_loop().time() + self._pause)
