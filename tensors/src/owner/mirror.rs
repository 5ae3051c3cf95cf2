//! The entries in Redis: what the books say, written by one thread, so that writes have one order.
//!
//! A write is one script (EVALSHA): the whole hash with its reference count, and the reply to who asked. It says how
//! things are, not how they change, so that it may be made again after a connection broke. An owner that another one
//! has followed is refused by its epoch. When Redis comes back, or was emptied, all of it is written again: the books win. Replies have
//! numbers, so that one whose writing was cut off comes once, and not twice.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Connection, Pipeline, RedisResult};
use serde_json::Value;

use super::operations::About;
use super::{Shared, lock};
use crate::books::HIDDEN;
use crate::identity::{Identity, Life};
use crate::words::{Code, Refusal};

/// Replies that wait at most; then commands wait.
const REPLIES: usize = 4096;
/// Replies in one go.
const BATCH: usize = 512;
/// How often the owner says that it is there.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long an owner that can't be seen counts as there after its last word.
const SILENCE: u64 = 10_000;
const RETRY: Duration = Duration::from_millis(200);

/// The hash in Redis of who owns the tensors.
pub const OWNER: &str = "tensor:owner";
/// The set in Redis of all names.
pub const NAMES: &str = "tensor:names";
/// The hash of a tensor in Redis is here, with its name behind; so that no name can meet another key.
pub const HASH: &str = "tensor:name:";
/// The list in Redis of the reply to a request is here, with its identifier behind.
pub const REPLY: &str = "tensor:reply:";
/// Replies to requests without an identifier; the last thousand.
pub const REPLY_TO_NOBODY: &str = "tensor:reply";

/// KEYS: owner, names, hash, reply. ARGV: epoch, set | drop | none, generation, name, reply, its number, fields and values.
const WRITE: &str = r"
local epoch = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0')
if epoch > tonumber(ARGV[1]) then return 'superseded' end
if ARGV[2] ~= 'none' then
  local kind = redis.call('TYPE', KEYS[3]).ok
  if kind ~= 'none' and (kind ~= 'hash' or redis.call('HGET', KEYS[3], 'generation') ~= ARGV[3]) then
    redis.call('DEL', KEYS[3])
  end
end
if ARGV[2] == 'set' then
  redis.call('HSET', KEYS[3], unpack(ARGV, 7))
  redis.call('SADD', KEYS[2], ARGV[4])
elseif ARGV[2] == 'drop' then
  redis.call('DEL', KEYS[3])
  redis.call('SREM', KEYS[2], ARGV[4])
end
if ARGV[5] ~= '' and tonumber(redis.call('HGET', KEYS[1], 'replied') or '0') < tonumber(ARGV[6]) then
  redis.call('HSET', KEYS[1], 'replied', ARGV[6])
  if not pcall(redis.call, 'RPUSH', KEYS[4], ARGV[5]) then
    redis.call('DEL', KEYS[4])
    redis.call('RPUSH', KEYS[4], ARGV[5])
  end
  redis.call('LTRIM', KEYS[4], -1000, -1)
  redis.call('EXPIRE', KEYS[4], 60)
end
return 'ok'
";

/// KEYS: owner. ARGV: epoch, fields and values. The entry is written if no later owner has done so; `new` if this
/// one had none.
const CLAIM: &str = r"
local epoch = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0')
if epoch > tonumber(ARGV[1]) then return 'superseded' end
local is_new = epoch < tonumber(ARGV[1])
if is_new then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return is_new and 'new' or 'ok'
";

/// KEYS: owner, names. ARGV: epoch, the beginning of the hashes' keys. Entries of owners before this one go.
const SWEEP: &str = r"
local epoch = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0')
if epoch > tonumber(ARGV[1]) then return 'superseded' end
for _, name in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  local key = ARGV[2] .. name
  local of = redis.call('HGET', key, 'epoch')
  if not of or tonumber(of) < tonumber(ARGV[1]) then
    redis.call('DEL', key)
    redis.call('SREM', KEYS[2], name)
  end
end
return 'ok'
";

/// A reply that is to be written.
struct Reply {
    /// Counted from 1 for as long as the owner lives.
    number: u64,
    id: Option<String>,
    value: Value,
}

#[derive(Default)]
struct Waiting {
    replies: VecDeque<Reply>,
    count: u64,
}

/// Replies that are to be written.
#[derive(Default)]
pub struct Replies {
    waiting: Mutex<Waiting>,
    moved: Condvar,
}

impl Replies {
    /// Adds one; waits while there are too many.
    pub fn push(&self, id: Option<String>, reply: Value) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while waiting.replies.len() >= REPLIES {
            waiting = self.moved.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.count += 1;
        let number = waiting.count;
        waiting.replies.push_back(Reply { number, id, value: reply });
        self.moved.notify_all();
    }

    /// Something is to be done.
    pub fn wake(&self) {
        self.moved.notify_all();
    }

    /// Waits a while until there is something; takes it.
    fn take(&self, patience: Duration) -> Vec<Reply> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.replies.is_empty() {
            waiting = self.moved.wait_timeout(waiting, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        let count = waiting.replies.len().min(BATCH);
        let taken = waiting.replies.drain(..count).collect();
        self.moved.notify_all();
        taken
    }

    /// Puts back what was taken and not written, before all others.
    fn put_back(&self, taken: Vec<Reply>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        taken.into_iter().rev().for_each(|reply| waiting.replies.push_front(reply));
    }
}

/// The scripts, as Redis knows them.
struct Scripts {
    write: String,
    claim: String,
    sweep: String,
}

fn load(connection: &mut Connection) -> RedisResult<Scripts> {
    let mut load = |text: &str| redis::cmd("SCRIPT").arg("LOAD").arg(text).query(connection);
    Ok(Scripts { write: load(WRITE)?, claim: load(CLAIM)?, sweep: load(SWEEP)? })
}

/// A connection on which an answer takes a few seconds at most.
pub fn connect(url: &str, patience: Duration) -> RedisResult<Connection> {
    let connection = redis::Client::open(url)?.get_connection_with_timeout(Duration::from_secs(5))?;
    connection.set_read_timeout(Some(patience))?;
    connection.set_write_timeout(Some(patience))?;
    Ok(connection)
}

const PATIENCE: Duration = Duration::from_secs(10);

/// What an owner says of itself.
fn owner_fields(about: &About, identity: &Identity, epoch: u64) -> Vec<(&'static str, String)> {
    vec![
        ("epoch", epoch.to_string()),
        ("pid", identity.pid.to_string()),
        ("start", identity.start.to_string()),
        ("boot_id", identity.boot_id.clone()),
        ("pid_ns", identity.pid_ns.to_string()),
        ("socket", about.socket.clone()),
        ("seen", super::stock::now().to_string()),
    ]
}

/// Refuses to begin where another owner serves another socket over this Redis.
pub fn refuse_second_owner(url: &str, about: &About) -> Result<(), Refusal> {
    // Redis may come later.
    let Ok(mut connection) = connect(url, PATIENCE) else { return Ok(()) };
    let fields = ["pid", "start", "boot_id", "pid_ns", "socket", "seen"];
    let known: RedisResult<Vec<Option<String>>> = redis::cmd("HMGET").arg(OWNER).arg(&fields).query(&mut connection);
    let known: Vec<String> = known.unwrap_or_default().into_iter().map(Option::unwrap_or_default).collect();
    let [pid, start, boot_id, pid_ns, socket, seen] = &known[..] else { return Ok(()) };
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    if pid.is_empty() || *socket == about.socket {
        return Ok(());
    }
    let other =
        Identity { boot_id: boot_id.clone(), pid_ns: number(pid_ns), pid: number(pid) as u32, start: number(start) };
    let is_there = match other.life() {
        Life::Alive => true,
        Life::Dead => false,
        Life::Unknown => number(seen) + SILENCE > super::stock::now(),
    };
    if !is_there {
        return Ok(());
    }
    let words = format!(
        "another owner serves tensors over this Redis: process {pid}, socket {socket}. Stop it, or take another Redis"
    );
    Err(Refusal::new(Code::Busy, words))
}

/// One line of a pipeline: the entry of a name as it is now, and a reply.
fn write(pipeline: &mut Pipeline, shared: &Shared, scripts: &Scripts, name: Option<&str>, reply: Option<&Reply>) {
    let stock = lock(&shared.stock);
    let tensor = name.and_then(|name| stock.books.named(name)).filter(|tensor| tensor.draft_of.is_none());
    let hash = name.map(|name| format!("{HASH}{name}")).unwrap_or_default();
    let action = match (name, tensor) {
        (None, _) => "none",
        (Some(_), Some(_)) => "set",
        (Some(_), None) => "drop",
    };
    let command = pipeline.cmd("EVALSHA").arg(&scripts.write).arg(4).arg(OWNER).arg(NAMES).arg(hash);
    let key = reply.and_then(|reply| reply.id.as_ref()).map_or(REPLY_TO_NOBODY.to_owned(), |id| format!("{REPLY}{id}"));
    command.arg(key).arg(stock.books.epoch).arg(action);
    command.arg(tensor.map_or(0, |tensor| tensor.generation)).arg(name.unwrap_or_default());
    command.arg(reply.map_or(String::new(), |reply| reply.value.to_string()));
    command.arg(reply.map_or(0, |reply| reply.number));
    let Some(tensor) = tensor else { return };
    if let Value::Object(fields) = stock.entry(&shared.about, tensor) {
        for (field, value) in fields.into_iter().filter(|(field, _)| field != "ok" && field != "draft") {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            command.arg(field).arg(text);
        }
    }
}

/// Why the mirror stops for now.
enum Broken {
    Redis(redis::RedisError),
    Superseded,
}

impl From<redis::RedisError> for Broken {
    fn from(error: redis::RedisError) -> Broken {
        Broken::Redis(error)
    }
}

fn check(answers: &[String]) -> Result<(), Broken> {
    if answers.iter().any(|answer| answer == "superseded") { Err(Broken::Superseded) } else { Ok(()) }
}

/// Says that this owner is there. If Redis did not know that, it may have no entries either: they are all written.
fn claim(shared: &Shared, scripts: &Scripts, connection: &mut Connection) -> Result<(), Broken> {
    let fields = {
        let stock = lock(&shared.stock);
        owner_fields(&shared.about, &stock.identity, stock.books.epoch)
    };
    let mut command = redis::cmd("EVALSHA");
    command.arg(&scripts.claim).arg(1).arg(OWNER).arg(&fields[0].1);
    for (field, value) in &fields {
        command.arg(field).arg(value);
    }
    let answer: String = command.query(connection)?;
    if answer == "new" {
        write_all(shared);
    }
    check(&[answer])
}

fn write_all(shared: &Shared) {
    let mut stock = lock(&shared.stock);
    let all: Vec<String> = stock.books.named_like("").map(|tensor| tensor.name.clone()).collect();
    stock.dirty.extend(all);
}

/// Writes as long as one connection holds.
fn write_on(shared: &Shared, connection: &mut Connection) -> Result<(), Broken> {
    let scripts = load(connection)?;
    claim(shared, &scripts, connection)?;
    write_all(shared);
    let (mut claimed, mut is_swept) = (Instant::now(), false);
    while !shared.is_stopping() {
        if claimed.elapsed() > HEARTBEAT {
            claim(shared, &scripts, connection)?;
            claimed = Instant::now();
        }
        let replies = shared.replies.take(if is_swept { Duration::from_millis(100) } else { Duration::ZERO });
        let mut names: Vec<String> = {
            // All of them: what a reply speaks of was noted before the reply was.
            let dirty = std::mem::take(&mut lock(&shared.stock).dirty);
            dirty.into_iter().filter(|name| !name.starts_with(HIDDEN)).collect()
        };
        if names.is_empty() && replies.is_empty() {
            if !is_swept {
                let epoch = lock(&shared.stock).books.epoch;
                let mut command = redis::cmd("EVALSHA");
                command.arg(&scripts.sweep).arg(2).arg(OWNER).arg(NAMES).arg(epoch).arg(HASH);
                check(&[command.query(connection)?])?;
                is_swept = true;
            }
            continue;
        }
        let mut pipeline = redis::pipe();
        // A reply comes after the entry that it speaks of: it shares its script where there is just one name.
        let shares = names.len() == 1 && replies.len() == 1;
        let shared_name = if shares { names.pop() } else { None };
        names.iter().for_each(|name| write(&mut pipeline, shared, &scripts, Some(name), None));
        for reply in &replies {
            write(&mut pipeline, shared, &scripts, shared_name.as_deref(), Some(reply));
        }
        let answers: Vec<String> = match pipeline.query(connection) {
            Ok(answers) => answers,
            Err(error) => {
                // What was not written is written again.
                let mut stock = lock(&shared.stock);
                stock.dirty.extend(names);
                stock.dirty.extend(shared_name);
                drop(stock);
                shared.replies.put_back(replies);
                return Err(error.into());
            }
        };
        check(&answers)?;
    }
    Ok(())
}

/// What is wrong with Redis. A pipeline repeats it for each of its lines.
pub fn trouble(error: &redis::RedisError) -> String {
    const LONGEST: usize = 200;
    let words: String = error.to_string().chars().take(LONGEST).collect();
    let is_cut = words.len() < error.to_string().len();
    let what = if error.is_io_error() || error.is_unrecoverable_error() { "can't be reached" } else { "refuses" };
    format!("Redis {what} ({words}{})", if is_cut { "..." } else { "" })
}

/// The thread that writes to Redis, until the owner ends.
pub fn run(shared: &Arc<Shared>, url: &str) {
    let mut is_said = false;
    while !shared.is_stopping() {
        let result = connect(url, PATIENCE).map_err(Broken::from);
        let result = result.and_then(|mut connection| {
            if std::mem::take(&mut is_said) {
                shared.say("Redis is back: all entries are written again");
            }
            write_on(shared, &mut connection)
        });
        match result {
            Ok(()) => return,
            Err(Broken::Superseded) => {
                shared.say("another owner has taken over: this one ends");
                shared.stop();
                return;
            }
            Err(Broken::Redis(error)) => {
                if !std::mem::replace(&mut is_said, true) {
                    shared.say(&format!("{}: the tensors stay, and the entries wait", trouble(&error)));
                }
                sleep(RETRY);
            }
        }
    }
}

/// At an orderly end: all entries go.
pub fn clear(shared: &Shared, url: &str) -> RedisResult<()> {
    let mut connection = connect(url, Duration::from_secs(3))?;
    let scripts = load(&mut connection)?;
    let epoch = lock(&shared.stock).books.epoch;
    // Nothing is of a later owner; what is of this one counts as before the next.
    let mut command = redis::cmd("EVALSHA");
    command.arg(&scripts.sweep).arg(2).arg(OWNER).arg(NAMES).arg(epoch + 1).arg(HASH);
    command.query::<String>(&mut connection)?;
    redis::cmd("DEL").arg(OWNER).query(&mut connection)
}
