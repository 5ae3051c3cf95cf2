//! What requests have in them, checked. They are the same over Redis and over the socket.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};

use crate::identity::Identity;
use crate::words::{Code, Dtype, Layout, Refusal, check_name, check_prefix};

macro_rules! operations {
    ($($(#[$doc:meta])* $op:ident $text:literal,)*) => {
        /// What is asked for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Op {
            $($(#[$doc])* $op,)*
        }

        const OPS: &[(&str, Op)] = &[$(($text, Op::$op)),*];
    };
}

operations! {
    /// A new tensor.
    Create "create",
    /// A tensor by name, and a reference to it.
    Get "get",
    /// All tensors whose names begin so, with a reference to each.
    GetMany "get_many",
    /// A reference less; with `all` the name goes at once.
    Delete "delete",
    /// References of a client less.
    Release "release",
    /// What was created as a draft is finished.
    Commit "commit",
    /// A tensor in memory that somebody else allocated.
    Publish "publish",
    /// The descriptor of a slab.
    Slab "slab",
    /// The words by which a client's streams say how far they are.
    Words "words",
    /// Who a client is, and what it holds.
    Hello "hello",
    /// All tensors.
    List "list",
    /// One tensor, with those that hold it.
    Show "show",
    /// What the owner has.
    Stats "stats",
    /// Looks for what the dead left, now.
    Gc "gc",
    /// What a process holds, or held at its end.
    Left "left",
}

/// How memory comes to other processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// As a descriptor over the owner's socket.
    #[default]
    Posix,
    /// As a legacy handle of 64 bytes.
    Legacy,
}

/// A request, checked field by field; what an operation needs is asked for with the methods.
#[derive(Debug)]
pub struct Request {
    /// What is asked for.
    pub op: Op,
    fields: Map<String, Value>,
}

/// Bytes of `meta` and `expect` at most, as JSON.
const META_LIMIT: usize = 4096;
const ID_LIMIT: usize = 128;

fn bad(field: &str, words: &str) -> Refusal {
    Refusal::new(Code::BadField, format!("{field}: {words}"))
}

/// The identifier for the reply.
fn address(id: &Value) -> Result<Option<String>, Refusal> {
    match id {
        Value::Null => Ok(None),
        Value::String(id) if id.len() <= ID_LIMIT && !id.is_empty() && !id.chars().any(char::is_control) => {
            Ok(Some(id.clone()))
        }
        Value::Number(id) => Ok(Some(id.to_string())),
        _ => Err(bad("id", "it is a number, or text of 1 to 128 bytes without control characters")),
    }
}

/// The identifier of a request that is not read, since it is too long. All else in it is passed over, and takes no
/// memory.
pub fn address_of(bytes: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Addressed {
        id: Value,
    }
    let addressed: Addressed = serde_json::from_slice(bytes).ok()?;
    address(&addressed.id).ok().flatten()
}

impl Request {
    /// Reads one. The identifier for the reply comes with a refusal, too, as far as there is one.
    pub fn parse(bytes: &[u8]) -> (Option<String>, Result<Request, Refusal>) {
        let fields = match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => return (None, Err(Refusal::new(Code::BadJson, "the request is JSON, but no object".into()))),
            Err(error) => return (None, Err(Refusal::new(Code::BadJson, format!("the request is not JSON: {error}")))),
        };
        let id = match fields.get("id").map_or(Ok(None), address) {
            Ok(id) => id,
            Err(refusal) => return (None, Err(refusal)),
        };
        let op = match fields.get("op") {
            Some(Value::String(op)) => OPS.iter().find(|(text, _)| text == op).map(|(_, op)| *op).ok_or_else(|| {
                let names: Vec<&str> = OPS.iter().map(|(text, _)| *text).collect();
                let shown: String = op.chars().take(40).collect();
                Refusal::new(Code::BadOp, format!("op {shown:?} is none: it takes {}", names.join(", ")))
            }),
            _ => Err(bad("op", "it is missing, or no text")),
        };
        (id, op.map(|op| Request { op, fields }))
    }

    fn field(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// The tensor's name.
    pub fn name(&self) -> Result<&str, Refusal> {
        let name =
            self.field("name").and_then(Value::as_str).ok_or_else(|| bad("name", "it is missing, or no text"))?;
        check_name(name)?;
        Ok(name)
    }

    /// What the names begin with.
    pub fn prefix(&self) -> Result<&str, Refusal> {
        let prefix = self.text("prefix")?.unwrap_or_default();
        check_prefix(prefix)?;
        Ok(prefix)
    }

    fn text(&self, name: &str) -> Result<Option<&str>, Refusal> {
        self.field(name).map(|value| value.as_str().ok_or_else(|| bad(name, "it is no text"))).transpose()
    }

    /// A number from 0.
    pub fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let number = |value: &Value| value.as_u64().ok_or_else(|| bad(name, "it is no whole number from 0"));
        self.field(name).map(number).transpose()
    }

    /// A number that must be there.
    pub fn needed(&self, name: &str) -> Result<u64, Refusal> {
        self.number(name)?.ok_or_else(|| bad(name, "it is missing"))
    }

    /// Yes or no; no if it is not there.
    pub fn flag(&self, name: &str) -> Result<bool, Refusal> {
        let flag = |value: &Value| value.as_bool().ok_or_else(|| bad(name, "it is true or false"));
        Ok(self.field(name).map(flag).transpose()?.unwrap_or(false))
    }

    /// The type and shape. A shape may also be text, as hashes have it: `"[2,3]"`.
    pub fn layout(&self) -> Result<Layout, Refusal> {
        let dtype = self.text("dtype")?.ok_or_else(|| bad("dtype", "it is missing"))?;
        let dtype = Dtype::named(dtype)?;
        let wrong = || Refusal::new(Code::BadShape, "shape: it is a list of whole numbers from 0, as [2,3]".into());
        let shape = match self.field("shape") {
            Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| wrong())?,
            Some(Value::Array(list)) => list.iter().map(|n| n.as_u64().ok_or_else(wrong)).collect::<Result<_, _>>()?,
            _ => return Err(wrong()),
        };
        Layout::new(dtype, shape)
    }

    /// The device's number; 0 if none is named.
    pub fn device(&self) -> Result<u32, Refusal> {
        let device = self.number("device")?.unwrap_or(0);
        u32::try_from(device).map_err(|_| Refusal::new(Code::NoDevice, format!("there is no device {device}")))
    }

    /// How the memory is to come to readers.
    pub fn transport(&self) -> Result<Option<Transport>, Refusal> {
        match self.text("transport")? {
            None => Ok(None),
            Some("posix") => Ok(Some(Transport::Posix)),
            Some("legacy") => Ok(Some(Transport::Legacy)),
            Some(_) => Err(bad("transport", "it is posix or legacy")),
        }
    }

    /// `meta` or `expect`: what a tensor is said to be.
    pub fn meta(&self, name: &str) -> Result<Map<String, Value>, Refusal> {
        match self.field(name) {
            None => Ok(Map::new()),
            Some(value @ Value::Object(map)) if value.to_string().len() <= META_LIMIT => Ok(map.clone()),
            Some(_) => Err(bad(name, &format!("it is an object of at most {META_LIMIT} bytes as JSON"))),
        }
    }

    /// Numbers of tensors.
    pub fn generations(&self) -> Result<Vec<u64>, Refusal> {
        let wrong = || bad("generations", "it is a list of whole numbers");
        let list = self.field("generations").and_then(Value::as_array).ok_or_else(wrong)?;
        list.iter().map(|value| value.as_u64().ok_or_else(wrong)).collect()
    }

    /// The slabs that a client has mapped, if it says so.
    pub fn mapped(&self) -> Result<Option<Vec<u64>>, Refusal> {
        let wrong = |_| bad("mapped", "it is a list of numbers");
        self.field("mapped").map(|value| serde_json::from_value(value.clone()).map_err(wrong)).transpose()
    }

    /// What a client says that it holds: how often each tensor.
    pub fn holds(&self) -> Result<BTreeMap<u64, u64>, Refusal> {
        let Some(value) = self.field("holds") else { return Ok(BTreeMap::new()) };
        let pairs: Vec<(u64, u64)> =
            serde_json::from_value(value.clone()).map_err(|_| bad("holds", "it is a list of pairs of numbers"))?;
        Ok(pairs.into_iter().collect())
    }

    /// What lets its holder delete.
    pub fn token(&self) -> Result<Option<&String>, Refusal> {
        match self.field("token") {
            None => Ok(None),
            Some(Value::String(token)) => Ok(Some(token)),
            Some(_) => Err(bad("token", "it is no text")),
        }
    }

    /// A legacy handle: 64 bytes as base64.
    pub fn ipc_handle(&self) -> Result<String, Refusal> {
        let text = self.text("ipc_handle")?.ok_or_else(|| bad("ipc_handle", "it is missing"))?;
        match BASE64_STANDARD.decode(text) {
            Ok(bytes) if bytes.len() == 64 => Ok(text.to_owned()),
            _ => Err(bad("ipc_handle", "it is 64 bytes as base64")),
        }
    }

    /// The process that asks, as far as it says so.
    pub fn who(&self) -> Result<Option<Identity>, Refusal> {
        let words = "it is an object of boot_id, pid_ns, pid and start";
        let read = |value: &Value| serde_json::from_value(value.clone()).map_err(|_| bad("who", words));
        let who: Option<Identity> = self.field("who").map(read).transpose()?;
        match who {
            Some(who) if who.boot_id.len() > 64 => Err(bad("who", words)),
            who => Ok(who),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refusal(text: &str, take: impl Fn(&Request) -> Option<Refusal>) -> Code {
        let parsed = Request::parse(text.as_bytes()).1;
        parsed.map_or_else(|refusal| refusal.code, |request| take(&request).expect("it is refused").code)
    }

    #[test]
    fn what_is_wrong_has_a_code_and_the_reply_has_its_address() {
        let layout = |request: &Request| request.layout().err();
        assert_eq!(refusal("{", layout), Code::BadJson);
        assert_eq!(refusal("[]", layout), Code::BadJson);
        assert_eq!(refusal(r#"{"op":"destroy"}"#, layout), Code::BadOp);
        assert_eq!(refusal(r#"{"op":7}"#, layout), Code::BadField);
        assert_eq!(refusal(r#"{"op":"create","dtype":"f31"}"#, layout), Code::BadDtype);
        assert_eq!(refusal(r#"{"op":"create","dtype":"f32","shape":[-1]}"#, layout), Code::BadShape);
        assert_eq!(refusal(r#"{"op":"create","dtype":"f32","shape":[1.5]}"#, layout), Code::BadShape);
        assert_eq!(refusal(r#"{"op":"create","device":99999999999}"#, |it| it.device().err()), Code::NoDevice);
        assert_eq!(refusal(r#"{"op":"get","name":"a\nb"}"#, |it| it.name().err()), Code::BadName);
        let (id, refused) = Request::parse(br#"{"op":"destroy","id":"r1"}"#);
        assert_eq!((id.as_deref(), refused.is_err()), (Some("r1"), true));
    }

    #[test]
    fn shapes_may_be_lists_or_the_text_of_hashes() {
        for shape in ["[2,3]", "\"[2,3]\""] {
            let text = format!(r#"{{"op":"create","name":"X","dtype":"f32","shape":{shape},"device":0}}"#);
            let request = Request::parse(text.as_bytes()).1.unwrap();
            assert_eq!(request.layout().unwrap().bytes, 24);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::parse(&bytes);
        }
    }
}
