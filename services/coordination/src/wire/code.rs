//! ZooKeeper's error codes. Clients refuse numbers that they do not know, so there are no others.

/// What a reply's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Code {
    Ok = 0,
    /// In a failed multi: not tried, because an earlier one failed.
    RuntimeInconsistency = -2,
    MarshallingError = -5,
    Unimplemented = -6,
    OperationTimeout = -7,
    BadArguments = -8,
    NoNode = -101,
    NoAuth = -102,
    BadVersion = -103,
    NoChildrenForEphemerals = -108,
    NodeExists = -110,
    NotEmpty = -111,
    SessionExpired = -112,
    InvalidAcl = -114,
    AuthFailed = -115,
    SessionMoved = -118,
    NoWatcher = -121,
    ReconfigDisabled = -123,
    QuotaExceeded = -125,
    Throttled = -127,
}

impl Code {
    /// All but [`Self::Ok`].
    const FAILURES: [Self; 19] = [
        Self::RuntimeInconsistency,
        Self::MarshallingError,
        Self::Unimplemented,
        Self::OperationTimeout,
        Self::BadArguments,
        Self::NoNode,
        Self::NoAuth,
        Self::BadVersion,
        Self::NoChildrenForEphemerals,
        Self::NodeExists,
        Self::NotEmpty,
        Self::SessionExpired,
        Self::InvalidAcl,
        Self::AuthFailed,
        Self::SessionMoved,
        Self::NoWatcher,
        Self::ReconfigDisabled,
        Self::QuotaExceeded,
        Self::Throttled,
    ];

    /// The failure of this number, if it is one.
    pub fn of_failure(number: i32) -> Option<Self> {
        Self::FAILURES.into_iter().find(|code| code.number() == number)
    }

    /// Its number on the wire.
    pub fn number(self) -> i32 {
        self as i32
    }
}
