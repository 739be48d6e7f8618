"""Calls of a service that answers each by one message: the log's and the sequence's."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import wire
from .errors import CallError, Closed, MaybeExecuted, NotSent, ServiceOff, TimedOut, Unreadable
from .link import Link, Window

#: A host that says it is busy is asked again after this.
BUSY_PAUSE = 0.02


#: The variant of replies of the log and the sequence.
_ONLY_VARIANT = 1


class Busy(Exception):
    """The host has done nothing and is to be asked again; `last`: what the call ends with if there is no time for that."""

    def __init__(self, last: CallError | None = None) -> None:
        super().__init__()
        self.last = last


@dataclass(eq=False)
class _Order:
    message: Callable[[int], bytes]
    #: What a reply of this variant comes to.
    outcome: Callable[[int, wire.Reader], Any]
    may_repeat: bool
    #: Whether it matters if it was executed.
    has_effect: bool
    #: How long a host that is well may take for the answer because of what was asked.
    wait: float
    answer: asyncio.Future[Any]
    #: When its caller stops waiting.
    deadline: float
    #: When it was sent last; 0: it was not.
    sent_at: float = 0.0
    #: It was sent before, to a host that may have executed it and was lost.
    was_lost: bool = False

    def is_last(self, now: float) -> bool:
        """An answer that takes as long as this one took comes too late, if the call is made again."""
        return now + BUSY_PAUSE + (now - self.sent_at) >= self.deadline


class Calls:
    """A connection of their own: where it breaks, calls that may not be repeated end with `MaybeExecuted`."""

    def __init__(
        self,
        endpoints: list[str],
        tls: ssl.SSLContext | None,
        token: str,
        timeout: float,
        window: Window,
        to_client: int,
    ) -> None:
        self._link = Link(endpoints, tls, token, self._on_message, self._on_up, self._on_down, self._on_off)
        self._timeout = timeout
        self._window = window
        self._to_client = to_client
        self._waiting: list[_Order] = []
        self._in_flight: dict[int, _Order] = {}
        self._next = 0
        self._closed = False

    async def call(
        self,
        message: Callable[[int], bytes],
        outcome: Callable[[wire.Reader], Any],
        *,
        may_repeat: bool,
        size: int = 0,
        wait: float = 0.0,
    ) -> Any:
        """The message of a call by its id, and what its reply comes to; `wait`: what the call itself may wait for."""

        def only(variant: int, reader: wire.Reader) -> Any:
            if variant != _ONLY_VARIANT:
                raise wire.Malformed(f"reply {variant}")
            return outcome(reader)

        return await self.call_variants(message, only, may_repeat=may_repeat, size=size, wait=wait)

    async def send_unanswered(self, message: bytes) -> None:
        """Sends a message that is not answered, if there is a connection: on another one it would mean nothing."""
        if self._link.is_up:
            self._link.send(message)

    async def call_variants(
        self,
        message: Callable[[int], bytes],
        outcome: Callable[[int, wire.Reader], Any],
        *,
        may_repeat: bool,
        has_effect: bool = False,
        size: int = 0,
        wait: float = 0.0,
    ) -> Any:
        """The same for a service whose replies are of several variants."""
        deadline = asyncio.get_running_loop().time() + self._timeout + wait
        within = self._timeout + wait
        try:
            async with asyncio.timeout_at(deadline):
                await self._window.enter(size)
        except TimeoutError:
            raise NotSent(f"too much was in flight for {within} s; the call was not sent") from None
        try:
            if self._closed:
                raise Closed("the client is closed")
            answer = asyncio.get_running_loop().create_future()
            order = _Order(message, outcome, may_repeat, has_effect, wait, answer, deadline)
            self._link.want()
            if self._link.is_up:
                self._send(order)
            else:
                self._waiting.append(order)
            try:
                async with asyncio.timeout_at(deadline):
                    return await order.answer
            except TimeoutError:
                if order in self._in_flight.values():
                    # The host has not answered for so long: another may.
                    self._link.turn()
                if not order.sent_at:
                    said = f"no answer within {within} s; the request was sent to no host, so nothing was executed"
                    raise NotSent(said + self._said()) from None
                raise TimedOut(f"no answer within {within} s{self._said()}") from None
            finally:
                if order in self._waiting:
                    self._waiting.remove(order)
        finally:
            self._window.leave(size)

    def _said(self) -> str:
        return "".join(f"; {endpoint}: {why}" for endpoint, why in self._link.refusals.items())

    async def close(self) -> None:
        self._closed = True
        await self._link.close()
        for order in [*self._waiting, *self._in_flight.values()]:
            _fail(order, Closed("the client is closed"))

    def _send(self, order: _Order) -> None:
        self._next += 1
        self._in_flight[self._next] = order
        order.sent_at = asyncio.get_running_loop().time()
        self._link.send(order.message(self._next))
        self._link.suspicion.expect(order.wait)

    def _on_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        for order in waiting:
            if not order.answer.done():
                self._send(order)

    def _on_down(self) -> None:
        in_flight, self._in_flight = self._in_flight, {}
        for order in in_flight.values():
            order.was_lost = True
            if order.may_repeat:
                self._waiting.append(order)
            else:
                _fail(order, MaybeExecuted("the connection broke; the call may have been executed"))

    def _on_off(self, why: str) -> None:
        """Hosts of one cluster have the same services: nobody else is asked."""
        orders = [*self._waiting, *self._in_flight.values()]
        self._waiting, self._in_flight = [], {}
        for order in orders:
            _fail(order, ServiceOff(f"the service is off there, so nothing was executed: {why}"))

    def _on_message(self, message: bytes) -> None:
        # A message that is not known may be of a later version, and is ignored.
        if len(message) < 2 or message[0] != self._to_client:
            return
        reader, variant = wire.Reader(message), message[1]
        reader.take(2)
        order = self._in_flight.pop(reader.u64(), None)
        self._link.suspicion.heard(min((owed.wait for owed in self._in_flight.values()), default=None))
        if order is None or order.answer.done():
            return
        try:
            order.answer.set_result(order.outcome(variant, reader))
        except Busy as busy:
            loop = asyncio.get_running_loop()
            if busy.last is not None and order.is_last(loop.time()):
                _fail(order, self._worth(order, busy.last))
            else:
                loop.call_later(BUSY_PAUSE, self._again, order)
        except CallError as error:
            _fail(order, self._worth(order, error))
        except wire.Malformed as error:
            order.answer.set_exception(Unreadable(f"the answer cannot be read: {error}"))

    def _worth(self, order: _Order, error: CallError) -> CallError:
        """That one host has executed nothing says nothing of another one, which was lost with the call."""
        if order.was_lost and order.has_effect:
            return MaybeExecuted("the connection broke; the call may have been executed")
        return error

    def _again(self, order: _Order) -> None:
        if self._link.is_up:
            self._send(order)
        else:
            self._waiting.append(order)


def _fail(order: _Order, error: CallError) -> None:
    if not order.answer.done():
        order.answer.set_exception(error)
