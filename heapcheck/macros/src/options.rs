//! What stands in the attribute's brackets: `allow = 100, suppress = "cache"`.

use proc_macro::{TokenStream, TokenTree};

use crate::Error;

/// Settings of a scope that the attribute knows. Each is a function of the scope's with one argument. Limits are those
/// of the test's own code; the others are of what is left at its end.
const KNOWN: &[(&str, bool)] = &[("allow", false), ("suppress", false), ("max_bytes", true), ("max_allocations", true)];

/// A setting and its value.
pub struct Setting {
    name: String,
    value: TokenStream,
    pub is_limit: bool,
}

impl Setting {
    /// The call that makes it: `.allow(100)`.
    pub fn call(&self) -> String {
        format!(".{}({})", self.name, self.value)
    }

    /// As it stands in the brackets.
    pub fn written(&self) -> String {
        format!("{} = {},", self.name, self.value)
    }
}

/// Reads the settings.
pub fn settings(options: TokenStream) -> Result<Vec<Setting>, Error> {
    let mut settings = Vec::new();
    let mut tokens = options.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let name = token.to_string();
        let Some(&(_, is_limit)) = KNOWN.iter().find(|(known, _)| *known == name) else {
            let known: Vec<String> = KNOWN.iter().map(|(known, _)| format!("{known} = VALUE")).collect();
            let words = format!("there is no setting `{name}`: there are {}", known.join(", "));
            return Err(Error::new(words, token.span()));
        };
        let is_given = matches!(tokens.next(), Some(TokenTree::Punct(sign)) if sign.as_char() == '=');
        let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(sign) if sign.as_char() == ',');
        let mut value = TokenStream::new();
        while let Some(token) = tokens.next_if(|token| !is_comma(token)) {
            value.extend([token]);
        }
        if !is_given || value.is_empty() {
            return Err(Error::new(format!("`{name}` needs a value: write {name} = VALUE"), token.span()));
        }
        // Its comma.
        tokens.next();
        settings.push(Setting { name, value, is_limit });
    }
    Ok(settings)
}
