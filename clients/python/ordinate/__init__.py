"""The Python client of Ordinate; see `Client`."""

from .client import Client
from .errors import (
    Aborted,
    AlreadyTrimmed,
    BeyondColour,
    BeyondTail,
    Busy,
    CallError,
    Closed,
    Collected,
    CommitUnknown,
    Exists,
    FromTheFuture,
    Full,
    FuzzyDiskFull,
    FuzzyError,
    FuzzyForgotten,
    FuzzyFull,
    FuzzyMalformed,
    FuzzyNumberUsed,
    Invalid,
    LogError,
    MaybeExecuted,
    Moved,
    NoClock,
    NoSuchLog,
    NotGranted,
    NotHere,
    NoTransaction,
    OtherRegion,
    OverBudget,
    Refused,
    Sealed,
    ServiceOff,
    NotSent,
    TimedOut,
    TooLarge,
    Trimmed,
    TxnBusy,
    TxnDiskFull,
    TxnError,
    TxnMalformed,
    Unarchived,
    Unavailable,
    DiskFull,
    Unreadable,
    Unsupported,
)
from .fuzzylog import AppendedNode, FuzzyInstance, FuzzyNode, FuzzySession, NewNode, SeenTime, SnapshotId
from .kv import Item, Level, Mismatch, MismatchAt, Page, Versioned, Written
from .link import tls_context
from .log import LogEntries, LogStat, Part, by_log
from .process import BaggageMiddleware, FullBaggage, LinearizableKv, MalformedBaggage, NoSuchService, Process
from .sequence import SequencePosition
from .txn import PROCESS_ORDERED, RSS, STRICT, OneShotResult, ReadResult, Scan, Scanned, Transaction, TxnLevel, TxnRow, TxnSession

__all__ = [
    "BeyondTail", "Busy", "CallError", "Client", "Closed", "Exists", "Full", "Invalid", "Item", "Level", "LogEntries", "LogError",
    "LogStat", "MaybeExecuted", "Mismatch", "MismatchAt", "Moved", "NoSuchLog", "NotGranted", "NotSent", "OverBudget", "Page", "Part", "SequencePosition", "Refused", "Sealed", "ServiceOff", "TimedOut",
    "DiskFull", "TooLarge", "Trimmed", "Unarchived", "Unreadable", "Unsupported", "Versioned", "Written", "by_log", "tls_context",
    "NotHere", "OtherRegion",
    "Aborted", "Collected", "CommitUnknown", "FromTheFuture", "NoClock", "NoTransaction", "OneShotResult", "PROCESS_ORDERED", "RSS",
    "ReadResult", "STRICT", "Scan", "Scanned", "Transaction", "TxnBusy", "TxnDiskFull", "TxnError", "TxnLevel", "TxnMalformed", "TxnRow",
    "TxnSession", "Unavailable", "BaggageMiddleware", "FullBaggage", "LinearizableKv", "MalformedBaggage", "NoSuchService", "Process",
    "AlreadyTrimmed", "AppendedNode", "BeyondColour", "FuzzyDiskFull", "FuzzyError", "FuzzyForgotten", "FuzzyFull", "FuzzyInstance",
    "FuzzyMalformed", "FuzzyNode", "FuzzyNumberUsed", "FuzzySession", "NewNode", "SeenTime", "SnapshotId",
]
