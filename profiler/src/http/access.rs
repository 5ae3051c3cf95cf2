//! Who may ask: a token, for handlers that others than this machine can reach.

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
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let given = bearer.or(parameter.token.as_deref()).unwrap_or_default();
    if request.uri().path() == "/healthz" || same(given.as_bytes(), token.as_bytes()) {
        return next.run(request).await;
    }
    let why = "a token is needed: send \"Authorization: Bearer TOKEN\", or ask with ?token=TOKEN\n";
    let mut response = text(StatusCode::UNAUTHORIZED, why.to_owned());
    response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    response.into_response()
}

/// Compares without telling by its time how much was right.
fn same(given: &[u8], token: &[u8]) -> bool {
    let differing = given.iter().zip(token).fold(0, |differing, (a, b)| differing | (a ^ b));
    given.len() == token.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn only_the_whole_token_is_the_token() {
        assert!(same(b"secret", b"secret"));
        for wrong in [&b""[..], b"secre", b"secrets", b"Secret"] {
            assert!(!same(wrong, b"secret"));
        }
    }
}
