//! The web page: what `/v1/status` says, refreshed every second, without anything from outside.

use axum::response::Html;

/// The page.
pub async fn page() -> Html<&'static str> {
    Html(include_str!("page.html"))
}
