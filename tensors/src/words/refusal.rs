//! Why a request was refused: a code for programs, and words for people.

use serde_json::{Value, json};

macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident $text:literal,)*) => {
        /// Why, for programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $($(#[$doc])* $code,)*
        }

        impl Code {
            /// As replies have it.
            pub fn text(self) -> &'static str {
                match self {
                    $(Code::$code => $text,)*
                }
            }

            /// The code of a reply.
            pub fn of(text: &str) -> Option<Code> {
                [$(Code::$code),*].into_iter().find(|code| code.text() == text)
            }
        }
    };
}

codes! {
    /// Not JSON, or not an object.
    BadJson "bad_json",
    /// An operation that is none.
    BadOp "bad_op",
    /// A field that is missing, or of the wrong type.
    BadField "bad_field",
    /// A name that may not be one.
    BadName "bad_name",
    /// A type that is none.
    BadDtype "bad_dtype",
    /// A shape with too many dimensions or bytes.
    BadShape "bad_shape",
    /// A request that is too long.
    TooLong "too_long",
    /// A device that the owner does not serve.
    NoDevice "no_device",
    /// The device is full.
    NoMemory "no_memory",
    /// The device refused a call.
    Device "device",
    /// There is a tensor of this name.
    Exists "exists",
    /// There is no tensor of this name.
    NoName "no_such_name",
    /// It is being written, and not finished.
    Unfinished "unfinished",
    /// It is not what was expected.
    Mismatch "mismatch",
    /// The same memory can't be had here.
    NotShared "not_shared",
    /// The caller may not do that.
    Denied "denied",
    /// Too many at once.
    Busy "busy",
    /// Nobody answers.
    NoOwner "no_owner",
    /// A wait took too long.
    Timeout "timeout",
    /// What the machine refused.
    System "system",
}

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct Refusal {
    /// Why, for programs.
    pub code: Code,
    /// What, where, and what to do.
    pub words: String,
}

impl Refusal {
    /// One with these words.
    pub fn new(code: Code, words: String) -> Refusal {
        Refusal { code, words }
    }

    /// What the machine refused while something was tried.
    pub fn system(tried: &str, error: impl std::fmt::Display) -> Refusal {
        Refusal::new(Code::System, format!("{tried}: {error}"))
    }

    /// As a reply.
    pub fn reply(&self) -> Value {
        json!({"ok": false, "code": self.code.text(), "error": self.words})
    }

    /// What a reply says, if it is a refusal.
    pub fn of_reply(reply: &Value) -> Option<Refusal> {
        if reply["ok"] == json!(true) {
            return None;
        }
        let code = reply["code"].as_str().and_then(Code::of).unwrap_or(Code::System);
        let words = reply["error"].as_str().unwrap_or("the reply has no words").to_owned();
        Some(Refusal { code, words })
    }
}
