//! Commands over Redis: the list `tensor:cmd`, on a connection of its own (BLPOP), and as many behind the first as are
//! there.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use redis::{Connection, RedisResult};

use super::operations::Caller;
use super::{Shared, lock, mirror};
use crate::wire::{Request, address_of};
use crate::words::{Code, Refusal};

/// The list of commands in Redis.
pub const COMMANDS: &str = "tensor:cmd";
/// Bytes of a command at most.
const COMMAND_LIMIT: usize = 64 << 10;
/// Commands in one go.
const BATCH: usize = 255;

fn take(connection: &mut Connection) -> RedisResult<Vec<Vec<u8>>> {
    let first: Option<(Vec<u8>, Vec<u8>)> = redis::cmd("BLPOP").arg(COMMANDS).arg(1).query(connection)?;
    let Some((_, first)) = first else { return Ok(Vec::new()) };
    let mut all = vec![first];
    // What is wrong the next question will say; the first is served, since nobody else has it.
    let more: RedisResult<Option<Vec<Vec<u8>>>> = redis::cmd("LPOP").arg(COMMANDS).arg(BATCH).query(connection);
    all.extend(more.ok().flatten().unwrap_or_default());
    Ok(all)
}

fn serve(shared: &Shared, command: &[u8]) {
    let (id, request) = match command.len() {
        length if length > COMMAND_LIMIT => {
            let words = format!("the command has {length} bytes: at most {COMMAND_LIMIT} are possible");
            (address_of(command), Err(Refusal::new(Code::TooLong, words)))
        }
        _ => Request::parse(command),
    };
    let mut caller = Caller { client: None, uid: None, pid: 0 };
    let answer = {
        let mut stock = lock(&shared.stock);
        stock.counts.requests += 1;
        let answer = request.and_then(|request| stock.serve(&shared.about, &mut caller, &request, None));
        stock.counts.refused += u64::from(answer.is_err());
        answer
    };
    let reply = answer.map_or_else(|refusal| refusal.reply(), |answer| answer.reply);
    shared.replies.push(id, reply);
}

/// The thread that serves commands, until the owner ends.
pub fn run(shared: &Arc<Shared>, url: &str) {
    while !shared.is_stopping() {
        // The mirror says what is wrong with Redis.
        let Ok(mut connection) = mirror::connect(url, Duration::from_secs(10)) else {
            sleep(Duration::from_millis(200));
            continue;
        };
        while let Ok(commands) = take(&mut connection) {
            commands.iter().for_each(|command| serve(shared, command));
            if shared.is_stopping() {
                return;
            }
        }
        // A list that is none, or Redis went away.
        sleep(Duration::from_millis(50));
    }
}
