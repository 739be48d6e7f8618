//! `ordinate zk sessions`: who is connected, from where, and who will expire when.

use crate::commands::{GivenToken, fetch, parse};
use crate::failure::Failure;
use serde_json::Value;

/// Prints every session that a host knows of, page by page.
pub fn list(admin: &str, token: &GivenToken, json: bool) -> Result<(), Failure> {
    let mut after = "0x0".to_owned();
    let mut first = true;
    loop {
        let page = parse(admin, &fetch(admin, token, &format!("/v1/zookeeper/sessions?after={after}"))?)?;
        let sessions = page["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
        if first && !json {
            println!(
                "{:<20}{:>9}{:>10}{:>12}  {:<12}FROM",
                "SESSION", "TIMEOUT", "EXPIRES", "EPHEMERALS", "HOST"
            );
        }
        first = false;
        for session in sessions {
            if json {
                println!("{session}");
            } else {
                print_line(session);
            }
        }
        match sessions.last().and_then(|session| session["session"].as_str()) {
            Some(last) if page["more"] == Value::Bool(true) => after = last.to_owned(),
            _ => return Ok(()),
        }
    }
}

fn print_line(session: &Value) {
    let text = |name: &str| session[name].as_str().unwrap_or("").to_owned();
    let seconds = |name: &str| format!("{:.1}s", session[name].as_f64().unwrap_or(0.0) / 1000.0);
    let expires =
        if session["closing"] == Value::Bool(true) { "closing".to_owned() } else { seconds("expires_in_ms") };
    println!(
        "{:<20}{:>9}{:>10}{:>12}  {:<12}{}",
        text("session"),
        seconds("timeout_ms"),
        expires,
        session["ephemerals"],
        text("host"),
        text("address"),
    );
}
