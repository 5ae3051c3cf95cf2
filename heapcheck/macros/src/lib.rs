//! `#[poolscope_heapcheck::test]`: a test whose body is a scope of the leak checker.
//!
//! The macro reads tokens itself and depends on nothing, so that a leak check stays cheap to build. It leaves the
//! function's body as it is, with its places in the source, and puts the scope around it.

mod function;
mod options;

use proc_macro::TokenStream;

use function::Function;

/// Makes a test of a function, which fails if it leaks.
///
/// ```ignore
/// #[poolscope_heapcheck::test]
/// fn parsing_frees_everything() {
///     parse("...");
/// }
///
/// #[poolscope_heapcheck::test(max_bytes = 64 * 1024, allow = 100)]
/// #[tokio::test]
/// async fn serving_frees_everything() {
///     serve().await;
/// }
/// ```
///
/// In the brackets are the settings of a scope: `allow`, `max_bytes`, `max_allocations` and `suppress`.
///
/// An `async` test needs a runtime's attribute under this one. The scope is then around the runtime, with its threads
/// and tasks, and limits are those of the test's own future.
///
/// A test that fails, by a panic or by `Err`, fails with its own words, and nothing is said of leaks.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    let settings = options::settings(options);
    let function = Function::read(item.clone());
    match settings.and_then(|settings| function?.checked(&settings)) {
        Ok(tokens) => tokens,
        // The function stays, so that there are no errors beside this one.
        Err(error) => [error.into_tokens(), item].into_iter().collect(),
    }
}

/// What is wrong with what stands in the source, and where.
struct Error {
    words: String,
    at: proc_macro::Span,
}

impl Error {
    fn new(words: impl Into<String>, at: proc_macro::Span) -> Self {
        Error { words: words.into(), at }
    }

    fn into_tokens(self) -> TokenStream {
        let text = format!("::core::compile_error! {{ {:?} }}", self.words);
        let tokens: TokenStream = text.parse().unwrap_or_default();
        tokens.into_iter().map(|token| at(token, self.at)).collect()
    }
}

/// A token, and what is in it, at a place in the source.
fn at(mut token: proc_macro::TokenTree, place: proc_macro::Span) -> proc_macro::TokenTree {
    if let proc_macro::TokenTree::Group(group) = &token {
        let within = group.stream().into_iter().map(|token| at(token, place)).collect();
        token = proc_macro::Group::new(group.delimiter(), within).into();
    }
    token.set_span(place);
    token
}
