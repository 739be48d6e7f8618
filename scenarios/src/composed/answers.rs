//! What the services answer, as what a session knows then.

use super::history::{Call, Outcome};
use super::session::{Service, Session};
use super::zookeeper::{ZkAnswer, ZkCall};
use kernel::{Bytes, Decode as _};
use shared_log::{Answer, Rows, Why};
use wire::txn::{TxnFailure, TxnReply};

pub(super) fn of_txn(bytes: &Bytes, service: Service, session: &mut Session) -> Outcome {
    match TxnReply::decoded(bytes).expect("a gateway answers in the words of the protocol") {
        TxnReply::Fenced(reply) => {
            session.saw(service, reply.token);
            session.fenced(service);
            Outcome::Fenced
        }
        TxnReply::Committed(reply) => {
            session.saw(service, reply.token);
            Outcome::Committed(reply.at)
        }
        TxnReply::ReadRows(reply) => {
            session.saw(service, reply.token);
            Outcome::Rows(reply.rows)
        }
        TxnReply::Failed(failed) if failed.why == TxnFailure::Unknown => Outcome::Unknown,
        TxnReply::Failed(failed) if failed.why.is_surely_void() => Outcome::Void,
        TxnReply::Failed(_) => Outcome::Unknown,
        TxnReply::NotMet(_) | TxnReply::Begun(_) | TxnReply::RowsWithin(_) | TxnReply::CommitFate(_) => {
            Outcome::Void
        }
    }
}

pub(super) fn of_answer(bytes: &Bytes, session: &mut Session) -> Outcome {
    match Answer::decoded(bytes).expect("gateways answer in their own words") {
        Answer::Appended(firsts) => firsts.first().map_or(Outcome::Unknown, |first| {
            session.log_end = session.log_end.max(first + 1);
            Outcome::Appended(*first)
        }),
        Answer::Entries(entries) => {
            session.log_end = session.log_end.max(entries.next);
            let words = Rows::iter(&entries.rows).map(|it| String::from_utf8_lossy(it).into_owned());
            Outcome::Entries(entries.first, words.collect(), entries.next == entries.tail)
        }
        Answer::Refused(refused) if refused.why == Why::Unknown => Outcome::Unknown,
        Answer::Refused(_) => Outcome::Void,
        Answer::Done
        | Answer::Logs(_)
        | Answer::Rejected(_)
        | Answer::Group(_)
        | Answer::Identity(_)
        | Answer::Description(_) => Outcome::Void,
    }
}

impl From<ZkCall> for Call {
    fn from(call: ZkCall) -> Self {
        match call {
            ZkCall::Get(path) => Self::Get(path),
            ZkCall::Set(path, value) => Self::Set(path, value),
        }
    }
}

pub(super) fn of_client(bytes: &Bytes) -> Outcome {
    match ZkAnswer::of(bytes).expect("a client answers in its own words") {
        ZkAnswer::Written(zxid) => Outcome::Written(zxid),
        ZkAnswer::Found(found) => Outcome::Found(found),
        ZkAnswer::Void => Outcome::Void,
        ZkAnswer::Unknown => Outcome::Unknown,
    }
}
