//! Asking hosts over HTTP: an append has a name of its own, so that it may be sent to another host and is executed once.

use crate::commands::admin::{AdminHosts, Call, HostAnswer, Verdict, busy, fetch, in_path, parse};
use crate::failure::Failure;
use serde_json::{Value, json};
use server::unique::unique_number;

/// Which hosts are asked; the next one if one does not answer.
#[derive(clap::Args)]
pub struct Hosts {
    #[command(flatten)]
    asked: AdminHosts,
}

/// Names appends: one client a command.
pub(super) struct Named {
    client: u64,
    number: u64,
}

impl Named {
    /// A client that nobody else is.
    pub(super) fn drawn() -> Self {
        Self { client: unique_number(), number: 0 }
    }

    /// The next call, with its name. All before have their answers.
    pub(super) fn next(&mut self, mut body: Value) -> Value {
        self.number += 1;
        let (id, number) = (format!("{:016x}", self.client), self.number);
        body["client"] = json!({ "id": id, "number": number, "below": number });
        body
    }
}

/// A page of a colour: up to its end, or up to a position that an answer had.
pub(super) fn page_path(colour: &str, from: u64, to: Option<u64>) -> String {
    let to = to.map_or_else(String::new, |to| format!("&to={to}"));
    format!("/v1/fuzzylog/colours/{}?from={from}{to}", in_path(colour))
}

/// A number of an answer.
pub(super) fn number(value: &Value) -> Result<u64, Failure> {
    value.as_u64().ok_or_else(|| {
        Failure::failed(
            "O1001",
            "the answer cannot be read",
            format!("{value} is no position"),
            "ordinate version",
        )
    })
}

/// What was asked for is gone; this is the first position that is left.
struct Gone(u64);

impl Hosts {
    /// A call that changes nothing.
    pub(super) fn read(&self, path: &str) -> Result<Value, Failure> {
        self.ask("GET", path, "", false)
    }

    /// What each host answers that does; an error if none does.
    pub(super) fn read_each(&self, path: &str) -> Result<Vec<Value>, Failure> {
        let (mut answers, mut last) = (Vec::new(), None);
        for admin in &self.asked.admin {
            let answer = fetch(admin, &self.asked.token, path).and_then(|body| parse(admin, &body));
            match answer {
                Ok(answer) => answers.push(answer),
                Err(failure) => last = Some(failure),
            }
        }
        match last {
            Some(failure) if answers.is_empty() => Err(failure),
            Some(_) | None => Ok(answers),
        }
    }

    /// A call that may be sent again, to any host: it has a name, or comes to the same.
    pub(super) fn write(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.ask("POST", path, &body.to_string(), true)
    }

    /// The same of what is to go.
    pub(super) fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.ask("DELETE", path, "", true)
    }

    /// Where a colour begins.
    pub(super) fn first(&self, colour: &str) -> Result<u64, Failure> {
        match self.try_all("GET", &page_path(colour, 0, None), "", false)? {
            Ok(page) => number(&page["from"]),
            Err(Gone(first)) => Ok(first),
        }
    }

    fn ask(&self, verb: &str, path: &str, body: &str, writes: bool) -> Result<Value, Failure> {
        self.try_all(verb, path, body, writes)?.map_err(|Gone(first)| {
            Failure::failed(
                "O1061",
                "what was asked for was trimmed",
                format!("the colour begins at {first}"),
                format!("--from {first}  (the state before it is where those who trimmed it have it)"),
            )
        })
    }

    fn try_all(
        &self,
        verb: &str,
        path: &str,
        body: &str,
        writes: bool,
    ) -> Result<Result<Value, Gone>, Failure> {
        let unanswered = |why| Verdict::Unknown(unknown(why));
        self.asked
            .ask_in_turn(&Call { verb, path, body, writes }, unanswered, |answer| judged(answer, writes))
    }
}

fn judged(HostAnswer { status, answer, why }: HostAnswer, writes: bool) -> Verdict<Result<Value, Gone>> {
    match status {
        200 => Verdict::Done(Ok(answer)),
        503 => Verdict::Again(busy(why)),
        504 if writes => Verdict::Unknown(unknown(why)),
        412 => Verdict::No(not_here(why)),
        504 => Verdict::Again(nobody_serves(why)),
        410 => match number(&answer["first"]) {
            Ok(first) => Verdict::Done(Err(Gone(first))),
            Err(failure) => Verdict::No(failure),
        },
        507 if answer["retry"] == true => Verdict::Again(busy(why)),
        507 => Verdict::No(Failure::failed(
            "O1064",
            "the partition of the colours is full",
            why,
            "ordinate config explain fuzzylog.partition_bytes",
        )),
        416 => Verdict::No(Failure::input(
            "O1062",
            "the position is beyond the end of the colour",
            format!("the colour ends at {}", answer["tail"]),
            "ordinate fuzzylog snapshot COLOUR",
        )),
        404 => Verdict::No(Failure::input(
            "O1062",
            "there is no partially ordered log",
            why,
            "ordinate config explain fuzzylog.partitions",
        )),
        _ => Verdict::No(Failure::input(
            "O1062",
            "the call was refused, and nothing was done",
            why,
            "ordinate fuzzylog --help",
        )),
    }
}

/// Another host, or the same a little later, may do it.
pub(in crate::commands) fn nobody_serves(fact: String) -> Failure {
    let what = "nobody serves the partition of the colour";
    Failure::failed("O1060", what, fact, "ordinate fuzzylog partitions")
}

fn not_here(fact: String) -> Failure {
    let remedy = "ordinate fuzzylog regions, and the same again later";
    Failure::failed("O1065", "the region has not all of the snapshot yet: nothing was done", fact, remedy)
}

fn unknown(fact: String) -> Failure {
    let remedy = "ordinate fuzzylog sync COLOUR  (shows what is there)";
    Failure::failed("O1063", "it may have been done, or still be", fact, remedy)
}
