//! The clients: real connections with a mix of requests like a web shop's session store.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::options::Options;

/// Runs until the server closes the connections.
pub(crate) fn run(port: u16, options: &Options) -> io::Result<()> {
    // SAFETY: no memory is involved. The kernel ends this process when the server's main thread ends, however that
    // happens: a client must not outlive a server that was killed.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
    let clients: Vec<_> = (0..options.clients)
        .map(|index| {
            let options = options.clone();
            thread::spawn(move || converse(port, index as u64, &options))
        })
        .collect();
    for client in clients {
        client.join().expect("a client panicked")?;
    }
    Ok(())
}

fn converse(port: u16, index: u64, options: &Options) -> io::Result<()> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(&stream);
    let mut answer = Vec::new();
    let mut random = Random(index * 0x9e37_79b9 + 1);
    let pause = (options.rate > 0).then(|| Duration::from_secs_f64(options.clients as f64 / options.rate as f64));
    let mut next = Instant::now();
    let mut request = Vec::new();
    loop {
        request.clear();
        write_request(&mut request, &mut random, index, options.keys);
        request.push(b'\n');
        if (&stream).write_all(&request).is_err() {
            return Ok(());
        }
        answer.clear();
        if answers.read_until(b'\n', &mut answer).unwrap_or(0) == 0 {
            return Ok(());
        }
        if let Some(pause) = pause {
            next += pause;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// 55 % reads, 25 % writes, 8 % appends, 5 % deletions, 4 % watches, the rest the small change.
fn write_request(out: &mut Vec<u8>, random: &mut Random, index: u64, keys: u64) {
    // The smaller of two draws: some keys are popular, as keys are.
    let key = random.below(keys).min(random.below(keys));
    let verb = random.below(1000);
    let written = match verb {
        0..550 => write!(out, "GET session:{key}"),
        550..800 => {
            let length = [40, 120, 300, 900, 2500, 12_000][random.below(6) as usize] + random.below(64);
            let written = write!(out, "SET session:{key} {} ", 2000 + random.below(18_000));
            filler(out, length);
            written
        }
        800..880 => write!(out, "APPEND cart:{key} item={};", random.below(1_000_000)),
        880..930 => write!(out, "DEL session:{key}"),
        930..970 => {
            let written = write!(out, "WATCH session:{key} ");
            filler(out, 2000 + random.below(8000));
            written
        }
        970..985 => write!(out, "UNWATCH session:{key}"),
        985..995 => write!(out, "AUTH user-{index} {:016x}", random.next()),
        995..998 => write!(out, "SCAN session:{}", key % 100),
        _ => write!(out, "STATS"),
    };
    written.expect("a Vec takes every write");
}

fn filler(out: &mut Vec<u8>, length: u64) {
    out.extend(b"field=value&".iter().cycle().take(length as usize));
}

/// xorshift64*: the same requests in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}
