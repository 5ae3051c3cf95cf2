//! A reader that has Redis and nothing else: it asks by the list, and opens legacy handles. It says who it is, so that
//! its references come back when it ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use poolscope_gpu::Sharing;
use redis::Connection;
use serde_json::{Value, json};

use super::devices::Devices;
use crate::identity::Identity;
use crate::owner::{COMMANDS, REPLY, connect_redis};
use crate::words::{Code, Refusal};

/// A connection, and what was opened over it.
pub struct RedisReader {
    connection: Connection,
    who: Identity,
    patience: Duration,
    devices: Devices,
    /// Address and guards by slab.
    opened: HashMap<u64, (u64, u64)>,
}

fn failed(error: redis::RedisError) -> Refusal {
    Refusal::system("Redis", error)
}

impl RedisReader {
    /// Connects. Each request may take so long.
    pub fn open(url: &str, patience: Duration) -> Result<RedisReader, Refusal> {
        let connection = connect_redis(url, patience + Duration::from_secs(2)).map_err(failed)?;
        let (devices, opened) = (Devices::default(), HashMap::new());
        Ok(RedisReader { connection, who: Identity::own(), patience, devices, opened })
    }

    /// Makes a request, and waits for its reply.
    pub fn request(&mut self, mut request: Value) -> Result<Value, Refusal> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{}-{}-{number}", self.who.pid_ns, self.who.pid, self.who.start);
        request["id"] = id.clone().into();
        let pushed = redis::cmd("RPUSH").arg(COMMANDS).arg(request.to_string()).query(&mut self.connection);
        let _: u64 = pushed.map_err(failed)?;
        let seconds = self.patience.as_secs_f64();
        let answer = redis::cmd("BLPOP").arg(format!("{REPLY}{id}")).arg(seconds).query(&mut self.connection);
        let answer: Option<(String, String)> = answer.map_err(failed)?;
        let (_, text) = answer
            .ok_or_else(|| Refusal::new(Code::NoOwner, format!("no owner answered over Redis within {seconds} s")))?;
        let reply = serde_json::from_str(&text).map_err(|error| Refusal::system("a reply", error))?;
        Refusal::of_reply(&reply).map_or(Ok(reply), Err)
    }

    /// A tensor's entry, and where it lies in this process.
    pub fn get(&mut self, name: &str) -> Result<(Value, u64), Refusal> {
        let who = json!(self.who);
        let entry = self.request(json!({"op": "get", "name": name, "who": who}))?;
        let opened = self.open_entry(&entry);
        if opened.is_err() {
            // What failed is said.
            let _ = self.request(json!({"op": "release", "generations": [entry["generation"]], "who": who}));
        }
        opened.map(|address| (entry, address))
    }

    fn open_entry(&mut self, entry: &Value) -> Result<u64, Refusal> {
        let (slab, offset) = (entry["slab"].as_u64().unwrap_or(0), entry["offset"].as_u64().unwrap_or(0));
        if let Some((address, guards)) = self.opened.get_mut(&slab) {
            *guards += 1;
            return Ok(*address + offset);
        }
        let refuse = |why: String| {
            let words = format!("the memory of {} can't be had over Redis alone: {why}", entry["name"]);
            Refusal::new(Code::NotShared, words)
        };
        if entry["transport"] != "legacy" {
            let socket = &entry["socket"];
            return Err(refuse(format!("it comes over {socket}; create it with transport legacy, or go there")));
        }
        let handle = BASE64_STANDARD.decode(entry["ipc_handle"].as_str().unwrap_or_default()).unwrap_or_default();
        let handle = <[u8; 64]>::try_from(handle).map_err(|_| refuse("its handle is none".into()))?;
        let device = self.device(entry)?;
        let address = device.open_legacy(handle).map_err(|error| refuse(error.to_string()))?;
        self.opened.insert(slab, (address, 1));
        Ok(address + offset)
    }

    /// The device that a tensor is on.
    pub fn device(&self, entry: &Value) -> Result<std::sync::Arc<dyn Sharing>, Refusal> {
        self.devices.get(entry["gpu_uuid"].as_str().unwrap_or_default())
    }

    /// Gives a tensor back.
    pub fn release(&mut self, entry: &Value) -> Result<(), Refusal> {
        let slab = entry["slab"].as_u64().unwrap_or(0);
        if let Some((address, guards)) = self.opened.get_mut(&slab) {
            *guards -= 1;
            if *guards == 0 {
                let address = *address;
                self.opened.remove(&slab);
                let closed = self.device(entry)?.close_legacy(address);
                closed.map_err(|error| Refusal::new(Code::Device, error.to_string()))?;
            }
        }
        let who = json!(self.who);
        self.request(json!({"op": "release", "generations": [entry["generation"]], "who": who})).map(drop)
    }
}
