"""Why a call failed, and whether it may have been executed."""

from __future__ import annotations


class CallError(Exception):
    """Any failure of a call."""


class TimedOut(CallError):
    """No host answered in time. A write may have been executed: read before you send it again."""


class NotSent(TimedOut):
    """Never executed: in time there was no host that the request could be sent to, and it is not sent any more."""


class MaybeExecuted(CallError):
    """The connection or the session was lost while the call was in flight: it may have been executed."""


class Refused(CallError):
    """Never executed: the request is malformed or too large."""


class Invalid(CallError):
    """Never executed: the server says what is wrong with the command."""


class Busy(CallError):
    """Not executed: the host was too busy for as long as the call may take. The same may succeed later."""


class Unreadable(CallError):
    """The answer cannot be read: client and server do not fit."""


class ServiceOff(CallError):
    """Never executed: the cluster does not have the service, by its file."""


class NotGranted(CallError):
    """Never executed: the cluster's access control does not let this client do it."""


class Closed(CallError):
    """The client is closed."""


class LogError(CallError):
    """A call of the log was refused, and nothing was done."""

    def __init__(self, name: str, at: int, text: str) -> None:
        super().__init__(text)
        self.name = name
        self.at = at


class NoSuchLog(LogError):
    """There is no such log."""


class Exists(LogError):
    """There is a log of this name already."""


class Sealed(LogError):
    """Nothing can be appended any more; `at` is the tail."""


class Moved(LogError):
    """The tail is not where the append expects it; `at` is where it is."""


class Trimmed(LogError):
    """The entries are gone; `at` is the first position that is left, where a reader may resume."""


class BeyondTail(LogError):
    """There is no such position yet; `at` is the tail."""


class Full(LogError):
    """No room for such a log; `at` is what is free, in bytes."""


class Unsupported(LogError):
    """The engine of the cluster's log (log.engine of the cluster file) does not do this; nothing was done."""


class Unarchived(LogError):
    """Nothing was appended: `at` bytes of what was trimmed wait for the archive. The same may succeed later."""


class OverBudget(LogError):
    """Nothing was appended: the host's logs hold `at` bytes, and have reached their disk budget."""


class DiskFull(LogError):
    """Nothing was done: the disks of the host, or of half of the hosts, are full. The same may succeed later."""


class TooLarge(LogError):
    """The entries of one append cost more than 1 MiB, each counted with 8 bytes more."""


class TxnError(CallError):
    """A transaction has no result. Unless it is `CommitUnknown`, nothing was executed."""


class Aborted(TxnError):
    """An older transaction needed its locks, or a host forgot them. The whole transaction may be tried again."""


class TxnBusy(TxnError):
    """Too much is waiting."""


class CommitUnknown(TxnError):
    """The commit may have been executed, or may still be: ask for the status of `id`."""

    def __init__(self, text: str, id: str = "") -> None:
        super().__init__(f"{text} ({id})" if id else text)
        self.id = id


class TxnMalformed(TxnError):
    """A limit is exceeded, or the call makes no sense."""


class Collected(TxnError):
    """The versions of that time are not retained any more."""


class FromTheFuture(TxnError):
    """The timestamp or token is in the future."""


class NoClock(TxnError):
    """The host's clock cannot be relied on."""


class TxnDiskFull(TxnError):
    """The disks are full. The same may succeed later."""


class NoTransaction(TxnError):
    """There is no such transaction: it has ended, or was idle for too long."""


class Unavailable(TxnError):
    """A shard has no leader that can be reached. The same may succeed later."""


class FuzzyError(CallError):
    """A call of the partially ordered log has no result. Unless it is `FuzzyFull` or `FuzzyForgotten`, nothing was executed."""


class AlreadyTrimmed(FuzzyError):
    """The nodes are gone; `first` is the first position that is left. The state before it is to be had elsewhere."""

    def __init__(self, text: str, first: int) -> None:
        super().__init__(text)
        self.first = first


class BeyondColour(FuzzyError):
    """There is no such position yet; `tail` is the colour's end."""

    def __init__(self, text: str, tail: int) -> None:
        super().__init__(text)
        self.tail = tail


class FuzzyMalformed(FuzzyError):
    """A limit is exceeded, or the call makes no sense."""


class OtherRegion(FuzzyError):
    """What was seen, or the position, is of another region: carry a snapshot's id there. Nothing was executed."""


class NotHere(FuzzyError):
    """The region has not all of the snapshot yet. Nothing was executed; the same may succeed later."""


class FuzzyForgotten(FuzzyError):
    """The client has said that it has the answer to this number: it was executed, or never will be."""


class FuzzyNumberUsed(FuzzyError):
    """The client has used this number for something else."""


class FuzzyFull(FuzzyError):
    """A partition of the colours has as much as it may have. A copy that was sent before may still be executed."""


class FuzzyDiskFull(FuzzyError):
    """The disks are full. The same may succeed later."""
