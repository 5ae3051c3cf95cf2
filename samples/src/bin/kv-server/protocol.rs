//! One line in, one line out.

/// A request, owned, since it travels from the connection's thread to a worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Auth { user: String, token: String },
    Set { key: String, ttl_ms: u64, value: Vec<u8> },
    Get { key: String },
    Del { key: String },
    Append { key: String, value: Vec<u8> },
    Scan { prefix: String },
    Watch { key: String, filter: String },
    Unwatch { key: String },
    Stats,
    Quit,
}

/// Parses one line without its line end.
pub(crate) fn parse(line: &str) -> Result<Request, String> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let two = || rest.split_once(' ').ok_or_else(|| format!("{verb} needs two arguments"));
    let one = || if rest.is_empty() { Err(format!("{verb} needs an argument")) } else { Ok(rest.to_owned()) };
    Ok(match verb {
        "AUTH" => two().map(|(user, token)| Request::Auth { user: user.to_owned(), token: token.to_owned() })?,
        "SET" => {
            let (key, rest) = two()?;
            let (ttl, value) = rest.split_once(' ').ok_or("SET needs a key, milliseconds and a value")?;
            let ttl_ms = ttl.parse().map_err(|_| format!("SET: {ttl} is no number of milliseconds"))?;
            Request::Set { key: key.to_owned(), ttl_ms, value: value.as_bytes().to_vec() }
        }
        "GET" => Request::Get { key: one()? },
        "DEL" => Request::Del { key: one()? },
        "APPEND" => {
            two().map(|(key, value)| Request::Append { key: key.to_owned(), value: value.as_bytes().to_vec() })?
        }
        "SCAN" => Request::Scan { prefix: one()? },
        "WATCH" => two().map(|(key, filter)| Request::Watch { key: key.to_owned(), filter: filter.to_owned() })?,
        "UNWATCH" => Request::Unwatch { key: one()? },
        "STATS" => Request::Stats,
        "QUIT" => Request::Quit,
        _ => return Err(format!("unknown request {verb}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_spaces() {
        let set = Request::Set { key: "k".into(), ttl_ms: 10, value: b"a b  c".to_vec() };
        assert_eq!(parse("SET k 10 a b  c"), Ok(set));
    }

    #[test]
    fn missing_arguments_are_named() {
        assert_eq!(parse("GET"), Err("GET needs an argument".to_owned()));
        assert_eq!(parse("SET k soon v"), Err("SET: soon is no number of milliseconds".to_owned()));
        assert_eq!(parse("FLY"), Err("unknown request FLY".to_owned()));
    }
}
