//! Baggage: what a process knows, in a header.

use super::Vectors;
use std::convert::Infallible;
use wire::rss::{CausalContext, ServiceName, Token, extract, inject};

// A header that two languages write differently is lost between them, and causality with it.
#[test]
fn baggage() {
    let mut vectors = Vectors::new(
        "baggage.txt",
        "The header `baggage` (W3C) with our entry: the services used last, and a token for each service.\n\
         The bytes are the header's text.",
    );
    let name = |text: &str| ServiceName::new(text).expect("short and not empty");
    let mut add = |label: &str, meaning: &str, last: &[&str], tokens: &[(&str, Token)], before: &str| {
        let mut context = CausalContext {
            last: last.iter().map(|text| name(text)).collect(),
            tokens: tokens.iter().map(|(text, token)| (name(text), token.clone())).collect(),
        };
        let injected = inject(&mut context, before, |_| Ok::<u64, Infallible>(0)).expect("it has room");
        let read = |bytes: &[u8]| {
            let header = String::from_utf8_lossy(bytes);
            extract(&header).expect("a vector is a header").expect("with our entry")
        };
        vectors.add(label, meaning, &context, injected.header.as_bytes(), read);
    };
    let seen = Token::Inline(1_792_000_000_123_456_u64.to_le_bytes().to_vec());
    add("nothing", "a process that has used nothing", &[], &[], "");
    add(
        "txn",
        "transactions were used last, and seen up to 1792000000123456",
        &["txn"],
        &[("txn", seen.clone())],
        "",
    );
    add("log", "the log was used last, transactions before it", &["log"], &[("txn", seen.clone())], "");
    add(
        "several",
        "beside entries of others; both services have to be fenced",
        &["txn", "coordination"],
        &[("txn", seen), ("queue", Token::Fenced(300))],
        "tenant=7;p=1,trace=a%20b",
    );
    vectors.compare();
}
