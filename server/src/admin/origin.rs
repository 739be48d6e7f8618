//! Who may have sent a request over HTTP. A browser sends what any page asks it to: it must not write here for a page of another origin, nor
//! read for one whose name was made to point to this host (DNS rebinding).

use super::own_names::OwnNames;
use super::state::Admin;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Load balancers ask these by whatever name they have; there is nothing to be learned from them.
const FOR_ANY_NAME: [&str; 3] = ["/livez", "/healthz", "/readyz"];

/// Why a request is not served.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Turned {
    code: StatusCode,
    /// As the metrics have it.
    reason: &'static str,
    words: String,
}

impl OwnNames {
    /// Why a request is not served; none if it is.
    fn turn_away(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<Turned> {
        let host = headers.get(header::HOST);
        let called = host.map(|host| host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()));
        let is_read = [Method::GET, Method::HEAD].contains(method);
        match &called {
            Some(Some(authority)) if self.have(authority) => {}
            // Browsers name the host always, and some health checks do not.
            None if is_read => {}
            Some(_) if is_read && FOR_ANY_NAME.contains(&path) => {}
            Some(_) | None => {
                let name = host.and_then(|host| host.to_str().ok()).unwrap_or("none");
                let words = format!(
                    "this host is not called {name}; add the name to listen.names of the cluster file if it is: nothing was done"
                );
                let (code, reason) = (StatusCode::MISDIRECTED_REQUEST, "called by a foreign name");
                return Some(Turned { code, reason, words });
            }
        }
        if is_read {
            return None;
        }
        let text =
            |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("unreadable").to_owned());
        let site = text("sec-fetch-site");
        let is_foreign_site = site.as_deref().is_some_and(|site| !["same-origin", "none"].contains(&site));
        let origin = text("origin");
        let is_foreign = origin.as_deref().is_some_and(|origin| {
            let authority = origin.split_once("://").and_then(|(_, rest)| rest.parse::<Authority>().ok());
            authority.is_none() || authority != called.flatten()
        });
        if is_foreign || is_foreign_site {
            let by = origin.unwrap_or_else(|| "another site".to_owned());
            let words = format!("a page of {by} may not write here: nothing was done");
            return Some(Turned { code: StatusCode::FORBIDDEN, reason: "a page of another origin", words });
        }
        // A form needs no script and asks nobody; none of ours sends one.
        let is_browser = headers.keys().any(|name| name.as_str().starts_with("sec-fetch-"))
            || headers.contains_key(header::ORIGIN)
            || headers.contains_key(header::REFERER);
        let kind = text("content-type").unwrap_or_default().to_lowercase();
        let is_form = ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"]
            .iter()
            .any(|form| kind.starts_with(form));
        (is_browser && is_form).then(|| Turned {
            code: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            reason: "a browser's form",
            words: format!("a browser's form ({kind}) is not taken here: nothing was done"),
        })
    }
}

/// Lets a request on that was meant for this host, by somebody who may mean it.
pub(super) async fn guarded(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    match admin.names.turn_away(request.method(), request.uri().path(), request.headers()) {
        None => next.run(request).await,
        Some(Turned { code, reason, words }) => {
            admin.counts.note(reason);
            (code, format!("{words}\n")).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turned(method: &str, path: &str, headers: &[(&str, &str)]) -> Option<u16> {
        let addresses = ["A.example.net:7072", "10.0.0.1:7072", "[::1]:7070"];
        let names = OwnNames::of(addresses.into_iter(), ["db.example.net"].into_iter());
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: header::HeaderName = name.parse().expect("a name");
            map.append(name, value.parse().expect("a value"));
        }
        let method = method.parse().expect("a method");
        names.turn_away(&method, path, &map).map(|turned| turned.code.as_u16())
    }

    // A name that an attacker's DNS server has point to this host is another's, whatever it asks for.
    #[test]
    fn only_own_names_and_numbers_are_served() {
        for own in [
            "127.0.0.1:7070",
            "10.9.8.7",
            "[::1]:7070",
            "localhost:7070",
            "LOCALHOST",
            "a.example.net:7070",
            "a.EXAMPLE.net.",
            "db.example.net",
        ] {
            assert_eq!(turned("GET", "/v1/status", &[("host", own)]), None, "{own}");
            assert_eq!(turned("PUT", "/v1/kv/a", &[("host", own)]), None, "{own}");
        }
        for foreign in ["evil.example:7070", "localhost.evil.example", "127.0.0.1.evil.example", "a b", ""] {
            assert_eq!(turned("GET", "/v1/kv/a", &[("host", foreign)]), Some(421), "{foreign}");
            assert_eq!(turned("PUT", "/v1/kv/a", &[("host", foreign)]), Some(421), "{foreign}");
            assert_eq!(turned("GET", "/readyz", &[("host", foreign)]), None, "{foreign}");
            assert_eq!(turned("POST", "/readyz", &[("host", foreign)]), Some(421), "{foreign}");
        }
        assert_eq!(turned("GET", "/metrics", &[]), None);
        assert_eq!(turned("POST", "/v1/txn", &[]), Some(421), "who writes says to whom");
    }

    // What a browser does for a page of another origin is not what its user wants.
    #[test]
    fn pages_of_other_origins_write_nothing() {
        let own = ("host", "127.0.0.1:7070");
        let write = |more: &[(&str, &str)]| turned("POST", "/v1/kv/a", &[&[own], more].concat());
        assert_eq!(write(&[]), None, "a program");
        assert_eq!(write(&[("content-type", "application/x-www-form-urlencoded")]), None, "curl -d");
        assert_eq!(write(&[("origin", "http://127.0.0.1:7070"), ("sec-fetch-site", "same-origin")]), None);
        for foreign in ["http://evil.example", "http://127.0.0.1:8080", "null", "http://localhost:7070", ""] {
            assert_eq!(write(&[("origin", foreign)]), Some(403), "{foreign}");
        }
        for site in ["cross-site", "same-site", "elsewhere"] {
            assert_eq!(write(&[("sec-fetch-site", site)]), Some(403), "{site}");
        }
        for kind in [
            "text/plain;charset=UTF-8",
            "multipart/form-data; boundary=x",
            "Application/X-www-form-urlencoded",
        ] {
            assert_eq!(
                write(&[("sec-fetch-site", "same-origin"), ("content-type", kind)]),
                Some(415),
                "{kind}"
            );
        }
        assert_eq!(
            turned("GET", "/v1/status", &[own, ("sec-fetch-site", "cross-site")]),
            None,
            "it reads nothing"
        );
    }
}
