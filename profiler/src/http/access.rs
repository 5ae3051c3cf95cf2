//! Who may ask: a token, for handlers that others than this machine can reach, and the name of this machine for those
//! that only it can.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::pages::text;

/// Lets only requests pass that carry the token, as `Authorization: Bearer TOKEN` or as the parameter `token`, which
/// `go tool pprof` can send. `/healthz` is open to all: it says nothing about the program.
pub fn require_token(router: Router, token: String) -> Router {
    router.layer(middleware::from_fn_with_state(token, check))
}

/// Lets only requests pass that name this machine as it names itself: `localhost`, names below it, loopback addresses,
/// and those in `also`.
///
/// A page on the web can let its own name lead to 127.0.0.1 and have a browser here ask in its place, which then hands
/// it the answers (DNS rebinding). Such a request still has the page's name in its `Host`.
pub fn require_local_host(router: Router, also: Vec<String>) -> Router {
    router.layer(middleware::from_fn_with_state(Arc::new(also), check_host))
}

async fn check_host(State(also): State<Arc<Vec<String>>>, request: Request, next: Next) -> Response {
    let header = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
    // HTTP/1.0 has no names of hosts, and is spoken by no browser.
    let host = header.or_else(|| request.uri().authority().map(|authority| authority.as_str())).unwrap_or("localhost");
    let name = host_name(host);
    if is_local(name) || also.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return next.run(request).await;
    }
    let why =
        format!("this answers to the names of this machine, not to {name:?}: ask for http://127.0.0.1 or localhost\n");
    text(StatusCode::FORBIDDEN, why)
}

/// The host without its port.
fn host_name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').map_or(rest, |(address, _)| address);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

fn is_local(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    name == "localhost" || name.ends_with(".localhost") || name.parse().is_ok_and(is_loopback)
}

#[derive(Deserialize)]
struct TokenParameter {
    token: Option<String>,
}

async fn check(
    State(token): State<String>,
    Query(parameter): Query<TokenParameter>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Response {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| bearer_token(value.to_str().ok()?));
    let given = bearer.or(parameter.token.as_deref()).unwrap_or_default();
    if request.uri().path() == "/healthz" || same(given.as_bytes(), token.as_bytes()) {
        return next.run(request).await;
    }
    let why = "a token is needed: send \"Authorization: Bearer TOKEN\", or ask with ?token=TOKEN\n";
    let mut response = text(StatusCode::UNAUTHORIZED, why.to_owned());
    response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    response.into_response()
}

/// The token of `Bearer TOKEN`; the scheme may be written in any case (RFC 9110, 11.1).
fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start_matches(' '))
}

/// Compares without telling by its time how much was right.
fn same(given: &[u8], token: &[u8]) -> bool {
    let differing = given.iter().zip(token).fold(0, |differing, (a, b)| differing | (a ^ b));
    given.len() == token.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::{host_name, is_local, same};

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in
            ["localhost", "LOCALHOST:80", "a.localhost:1", "127.0.0.1:6060", "127.9.9.9", "[::1]:80", "localhost."]
        {
            assert!(is_local(host_name(host)), "{host}");
        }
        for host in
            ["", "evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "[::2]", "x"]
        {
            assert!(!is_local(host_name(host)), "{host}");
        }
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        assert!(same(b"secret", b"secret"));
        for wrong in [&b""[..], b"secre", b"secrets", b"Secret"] {
            assert!(!same(wrong, b"secret"));
        }
    }
}
