"""A client of all services of a cluster."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from types import TracebackType

from . import fuzzylog, log, sequence, txn
from .calls import Calls
from .kv import Kv
from .link import Window


class Client:
    """A client of the cluster behind `endpoints`: native addresses, `name:port`, of one or more hosts.

    Names are resolved on every dial, and nobody is dialled before something is asked. Use it in one event loop.
    """

    def __init__(
        self,
        endpoints: Iterable[str],
        *,
        tls: ssl.SSLContext | None = None,
        token: str = "",
        timeout: float = 10.0,
        outstanding_max: int = 1_024,
        outstanding_bytes_max: int = 16 << 20,
    ) -> None:
        hosts = list(endpoints)

        def window() -> Window:
            return Window(outstanding_max, outstanding_bytes_max)

        self._logs = Calls(hosts, tls, token, timeout, window(), log.TO_CLIENT)
        self._sequences = Calls(hosts, tls, token, timeout, window(), sequence.TO_CLIENT)
        self._transactions = Calls(hosts, tls, token, timeout, window(), txn.TO_CLIENT)
        self._colours = Calls(hosts, tls, token, timeout, window(), fuzzylog.TO_CLIENT)
        #: The key-value store.
        self.kv = Kv(hosts, tls, token, timeout, window())
        #: The shared log.
        self.log = log.Log(self._logs)
        #: The sequence.
        self.sequence = sequence.Sequence(self._sequences)
        #: The partially ordered log, and a session of it.
        self.fuzzylog = fuzzylog.FuzzySession(self._colours)
        #: Transactions, and a session of them.
        self.txn = txn.TxnSession(self._transactions, timeout)

    async def close(self) -> None:
        """Calls in flight end with `Closed`."""
        await self.kv.close()
        await self._logs.close()
        await self._sequences.close()
        await self._transactions.close()
        await self._colours.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
