//! A process that is watched through `poolscope serve`, on this machine or, over an ssh tunnel, on another one.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use poolscope_profiler::reading::Reading;
use poolscope_profiler::reading::listed::ListedProcesses;
use tokio::net::TcpStream;

use crate::args::token;
use crate::failure::Failure;
use crate::words::printable;

/// Time that a server has to answer. A search for leaks takes ten seconds at most.
const PATIENCE: Duration = Duration::from_secs(15);

/// The most bytes of an answer.
const ANSWER_MAX: usize = 256 << 20;

/// Columns of an answer in words that are shown.
const WORDS_MAX: usize = 300;

/// What another page answers that there is not: a server without readings.
const NO_PAGE: &str = "there is nothing here";

/// A server, and which process is asked for.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// Host and port, to connect to.
    address: String,
    /// Host and port as the URL has them.
    authority: String,
    /// Where the pages lie: empty, or a path without a slash at its end.
    path: String,
    pid: Option<u32>,
    token: Option<String>,
}

/// The token is nobody's to see.
impl fmt::Debug for Server {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{self}")
    }
}

impl fmt::Display for Server {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", self.place())?;
        self.pid.map_or(Ok(()), |pid| write!(to, "/?pid={pid}"))
    }
}

/// Whether an argument is a URL.
pub(crate) fn is_url(argument: &str) -> bool {
    argument.contains("://")
}

impl Server {
    /// The server of a URL, with the token of a file or of the URL itself.
    pub(crate) fn of(url: &str, token_file: Option<&Path>) -> Result<Server, Failure> {
        let wrong = |why: &str| Failure::usage(format!("{url} can't be watched: {why}"));
        let (scheme, _) = url.split_once("://").unwrap_or_default();
        if scheme != "http" {
            return Err(wrong(
                "poolscope serve speaks http:// only; from another machine, ssh -L 6060:127.0.0.1:6060 HOST brings it \
                 to http://127.0.0.1:6060",
            ));
        }
        let uri: Uri = url.parse().map_err(|error| wrong(&format!("{error}")))?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it names no host"))?;
        let mut server = Server {
            address: format!("{host}:{}", uri.port_u16().unwrap_or(80)),
            authority: uri.authority().map(ToString::to_string).unwrap_or_default(),
            path: uri.path().trim_end_matches('/').to_owned(),
            pid: None,
            token: None,
        };
        for parameter in uri.query().unwrap_or_default().split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("token", token)) => server.token = Some(token.to_owned()),
                Some(("pid", pid)) => {
                    server.pid = Some(pid.parse().map_err(|_| wrong(&format!("{pid} is no process id")))?);
                }
                _ => return Err(wrong(&format!("it may have pid=PID and token=TOKEN, and has {parameter}"))),
            }
        }
        if let Some(file) = token_file {
            server.token = Some(token::read(file)?);
        }
        if server.token.as_ref().is_some_and(|token| header::HeaderValue::from_str(token).is_err()) {
            return Err(wrong("the token has characters that can't be sent"));
        }
        Ok(server)
    }

    /// What is known of the process now.
    pub(crate) fn read(&self) -> Result<Reading, String> {
        let (status, headers, body) = self.get("/reading").map_err(|why| self.unreachable(&why))?;
        if status == StatusCode::OK {
            return Reading::read(&body).map_err(|why| format!("{self} can't be watched: {why}"));
        }
        Err(self.refusal(status, &headers, &body))
    }

    /// Which processes it has readings of.
    pub(crate) fn processes(&self) -> Result<ListedProcesses, String> {
        let (status, headers, body) = self.get("/processes").map_err(|why| self.unreachable(&why))?;
        if status != StatusCode::OK {
            return Err(self.refusal(status, &headers, &body));
        }
        ListedProcesses::read(&body).ok_or_else(|| format!("{self} sends no list of processes"))
    }

    /// Its URL without a process.
    pub(crate) fn place(&self) -> String {
        format!("http://{}{}", self.authority, self.path)
    }

    /// The same server, asked for a process.
    pub(crate) fn of_process(&self, pid: u32) -> Server {
        Server { pid: Some(pid), ..self.clone() }
    }

    /// The URL names a process.
    pub(crate) fn names_process(&self) -> bool {
        self.pid.is_some()
    }

    /// Has the process look for what it can't reach any more.
    pub(crate) fn search(&self) -> Result<(), String> {
        let (status, headers, body) = self.get("/debug/pprof/leak").map_err(|why| self.unreachable(&why))?;
        if status == StatusCode::OK { Ok(()) } else { Err(self.refusal(status, &headers, &body)) }
    }

    fn unreachable(&self, why: &str) -> String {
        format!("{self} does not answer: {why}. Does poolscope serve run there, and the ssh tunnel, if there is one?")
    }

    /// What an answer means that is none.
    fn refusal(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> String {
        let words = String::from_utf8_lossy(body);
        let is_text = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
        match (status, &self.token) {
            (StatusCode::UNAUTHORIZED, None) => {
                format!("{self} wants a token: name the file that poolscope serve has, by --token-file")
            }
            (StatusCode::UNAUTHORIZED, Some(_)) => format!("{self} has another token than the one that was given"),
            _ if is_text && !words.starts_with(NO_PAGE) => {
                let words: String = printable(words.trim()).chars().take(WORDS_MAX).collect();
                format!("{self} says: {words}")
            }
            _ => format!("{self} sends no readings ({status}): it is no poolscope serve, or one of an older version"),
        }
    }

    /// Asks for a page.
    fn get(&self, page: &str) -> Result<(StatusCode, HeaderMap, Bytes), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, self.ask(page)).await });
        answer.unwrap_or_else(|_| Err(format!("nothing came for {} s", PATIENCE.as_secs())))
    }

    async fn ask(&self, page: &str) -> Result<(StatusCode, HeaderMap, Bytes), String> {
        let stream = TcpStream::connect(&self.address).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let connection = tokio::spawn(connection);
        let pid = self.pid.map(|pid| format!("?pid={pid}")).unwrap_or_default();
        let mut request = Request::get(format!("{}{page}{pid}", self.path)).header(header::HOST, &self.authority);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await.map_err(|error| error.to_string())?.to_bytes();
        connection.abort();
        Ok((head.status, head.headers, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_host_path_process_and_token() {
        let server = Server::of("http://build-7:6060/pool/?pid=12&token=s3cret", None).expect("is a server");
        assert_eq!((server.address.as_str(), server.path.as_str(), server.pid), ("build-7:6060", "/pool", Some(12)));
        assert_eq!(server.token.as_deref(), Some("s3cret"));
        assert_eq!(server.to_string(), "http://build-7:6060/pool/?pid=12");
        assert!(!format!("{server:?}").contains("s3cret"));
        assert_eq!(Server::of("http://[::1]", None).expect("is a server").address, "[::1]:80");
    }

    #[test]
    fn what_is_no_server_says_what_to_do() {
        let why = |url: &str| Server::of(url, None).expect_err(url).to_string();
        assert!(why("https://build-7:6060").contains("ssh -L"));
        assert!(why("http://h:1/?pid=x").contains("x is no process id"));
        assert!(why("http://h:1/?seconds=3").contains("pid=PID and token=TOKEN"));
        assert!(why("http://").contains("can't be watched"));
    }
}
