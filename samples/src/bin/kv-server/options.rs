//! The command line.

/// What `--help` prints.
pub(crate) const USAGE: &str = "\
An in-memory key-value server on loopback, with clients of its own.

usage: kv-server [--port P] [--workers N] [--clients N] [--seconds S] [--rate R] [--keys K]

  --port P      port on 127.0.0.1; 0 takes a free one (0)
  --workers N   worker threads (4)
  --clients N   connections that a child process opens and keeps busy (0)
  --seconds S   stop after S seconds; 0 runs until SIGTERM (300)
  --rate R      requests per second of all clients together; 0 is as fast as they can (3000)
  --keys K      how many different keys the clients use (20000)

Protocol, one line per request: AUTH user token | SET key milliseconds value | GET key | DEL key |
APPEND key value | SCAN prefix | WATCH key filter | UNWATCH key | STATS | QUIT
";

/// Which half of the program this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Listens.
    Server,
    /// Connects to a server on this port.
    Clients {
        /// The server's port on loopback.
        port: u16,
    },
}

/// The parsed command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) role: Role,
    pub(crate) port: u16,
    pub(crate) workers: usize,
    pub(crate) clients: usize,
    pub(crate) seconds: u64,
    pub(crate) rate: u64,
    pub(crate) keys: u64,
}

impl Options {
    /// `None` means that help was asked for.
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
        let mut options =
            Options { role: Role::Server, port: 0, workers: 4, clients: 0, seconds: 300, rate: 3000, keys: 20_000 };
        while let Some(name) = args.next() {
            if name == "--help" || name == "-h" {
                return Ok(None);
            }
            let mut number = |max: u64| -> Result<u64, String> {
                let value = args.next().ok_or(format!("{name} needs a number"))?;
                let number = value.parse().map_err(|_| format!("{name} {value}: not a number"))?;
                if number > max { Err(format!("{name} {value}: at most {max}")) } else { Ok(number) }
            };
            match name.as_str() {
                "--port" => options.port = number(u16::MAX.into())? as u16,
                "--workers" => options.workers = number(1024)?.max(1) as usize,
                "--clients" => options.clients = number(1024)? as usize,
                "--seconds" => options.seconds = number(u32::MAX.into())?,
                "--rate" => options.rate = number(u32::MAX.into())?,
                "--keys" => options.keys = number(u32::MAX.into())?.max(1),
                "--connect" => options.role = Role::Clients { port: number(u16::MAX.into())? as u16 },
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(Some(options))
    }
}
