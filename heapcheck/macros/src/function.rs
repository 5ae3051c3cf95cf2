//! The function that the attribute stands above.

use proc_macro::{Delimiter, Group, Span, TokenStream, TokenTree};

use crate::Error;
use crate::options::Setting;

/// A function's parts, as far as the attribute has to know them.
pub struct Function {
    attributes: Vec<TokenTree>,
    /// What stands between them and the body: visibility, name, arguments and type.
    head: Vec<TokenTree>,
    body: Group,
    /// What it gives back.
    output: String,
    name: Span,
    is_async: bool,
    /// An attribute above it makes it a test already.
    is_test: bool,
    /// A test with arguments is some other attribute's, which makes the tests of it.
    has_arguments: bool,
}

impl Function {
    /// Reads the tokens of an item.
    pub fn read(item: TokenStream) -> Result<Self, Error> {
        let mut tokens: Vec<TokenTree> = item.into_iter().collect();
        let not_a_function = |at| Error::new("#[poolscope_heapcheck::test] stands above functions only", at);
        let body = match tokens.pop() {
            Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => body,
            other => return Err(not_a_function(other.map_or_else(Span::call_site, |token| token.span()))),
        };
        let is_word =
            |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(name) if name.to_string() == word);
        let Some(keyword) = tokens.iter().position(|token| is_word(token, "fn")) else {
            return Err(not_a_function(tokens.first().map_or_else(Span::call_site, |token| token.span())));
        };
        let arguments = tokens[keyword..].iter().find_map(|token| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group),
            _ => None,
        });
        Ok(Function {
            is_async: tokens[..keyword].iter().any(|token| is_word(token, "async")),
            is_test: tokens[..keyword].windows(2).any(is_test_attribute),
            has_arguments: arguments.is_some_and(|arguments| !arguments.stream().is_empty()),
            output: output(&tokens[keyword..]),
            name: tokens.get(keyword + 1).map_or_else(Span::call_site, |token| token.span()),
            head: tokens.split_off(attributes(&tokens)),
            attributes: tokens,
            body,
        })
    }

    /// The function with a scope around its body.
    pub fn checked(self, settings: &[Setting]) -> Result<TokenStream, Error> {
        if self.is_async && !self.is_test {
            let words = "an async test needs a runtime: write its attribute under this one, such as #[tokio::test]";
            return Err(Error::new(words, self.name));
        }
        if self.is_async && self.has_arguments {
            let words = "an async test with arguments can't be watched: use poolscope_heapcheck::scope().watch(future)";
            return Err(Error::new(words, self.name));
        }
        Ok(if self.is_async { self.around_its_runtime(settings) } else { self.around_its_body(settings) })
    }

    /// The attribute moves under the runtime's, and comes to stand above what that makes of the function: a runtime and
    /// the future in it. What a runtime keeps for itself goes with it before the scope ends. Limits stay with the
    /// future: what a runtime takes is not the test's.
    fn around_its_runtime(self, settings: &[Setting]) -> TokenStream {
        let (limits, others): (Vec<_>, Vec<_>) = settings.iter().partition(|setting| setting.is_limit);
        let others: String = others.into_iter().map(Setting::written).collect();
        let mut tokens: TokenStream = self.attributes.into_iter().collect();
        tokens.extend(parse(&format!("#[::poolscope_heapcheck::test({others})]")));
        tokens.extend(self.head);
        if limits.is_empty() {
            tokens.extend([TokenTree::Group(self.body)]);
            return tokens;
        }
        let limits: String = limits.into_iter().map(Setting::call).collect();
        // A function of its own: what it gives back is then known where `?` is looked at in it.
        let mut block = parse(&format!("async fn body() -> {}", self.output));
        block.extend([TokenTree::Group(self.body)]);
        block.extend(parse(&format!(
            "let scope = ::poolscope_heapcheck::Scope::counting_futures(){limits}; \
             let outcome = scope.watch(body()).await; {END}"
        )));
        tokens.extend([TokenTree::Group(Group::new(Delimiter::Brace, block))]);
        tokens
    }

    fn around_its_body(self, settings: &[Setting]) -> TokenStream {
        let settings: String = settings.iter().map(Setting::call).collect();
        let mut tokens = TokenStream::new();
        if !self.is_test && !self.has_arguments {
            tokens.extend(parse("#[::core::prelude::v1::test]"));
        }
        tokens.extend(self.attributes);
        tokens.extend(self.head);
        let mut block = parse(&format!("let body = move || -> {}", self.output));
        block.extend([TokenTree::Group(self.body)]);
        block.extend(parse(&format!(
            "; let scope = ::poolscope_heapcheck::Scope::begin(){settings}; let outcome = body(); {END}"
        )));
        tokens.extend([TokenTree::Group(Group::new(Delimiter::Brace, block))]);
        tokens
    }
}

/// The end of a test that has not panicked.
const END: &str = "use ::poolscope_heapcheck::outcome::{FailsAsResult as _, FailsNever as _}; \
    if (&outcome).is_failure() { scope.abandon(); } else { scope.check(); } outcome";

/// Tokens of a text that is right.
fn parse(text: &str) -> TokenStream {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Whether two tokens are an attribute whose path ends in `test`: `#[test]`, `#[tokio::test(flavor = "...")]`.
fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(sign), TokenTree::Group(brackets)] = tokens else { return false };
    let path = brackets.stream().into_iter().take_while(|token| match token {
        TokenTree::Ident(_) => true,
        TokenTree::Punct(sign) => sign.as_char() == ':',
        _ => false,
    });
    sign.as_char() == '#' && path.last().is_some_and(|name| name.to_string() == "test")
}

/// How many tokens at the beginning are attributes.
fn attributes(tokens: &[TokenTree]) -> usize {
    let mut pairs = tokens.chunks(2);
    let is_attribute = |pair: &[TokenTree]| matches!(pair, [TokenTree::Punct(sign), _] if sign.as_char() == '#');
    2 * pairs.by_ref().take_while(|pair| is_attribute(pair)).count()
}

/// What stands between `->` and the body, or a `where`.
fn output(tokens: &[TokenTree]) -> String {
    let is_sign = |token: &TokenTree, sign: char| matches!(token, TokenTree::Punct(found) if found.as_char() == sign);
    // The arguments come first: an arrow in their types lies in a group.
    let arrow = tokens.windows(2).position(|pair| is_sign(&pair[0], '-') && is_sign(&pair[1], '>'));
    let Some(arrow) = arrow else { return "()".into() };
    let rest = tokens[arrow + 2..].iter().cloned();
    let output = rest.take_while(|token| !matches!(token, TokenTree::Ident(name) if name.to_string() == "where"));
    output.collect::<TokenStream>().to_string()
}
