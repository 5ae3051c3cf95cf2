//! Ruby's methods in native stacks.
//!
//! Stacks that the library captures in a Ruby that it knows hold its methods ([`poolscope_wire::script`]) behind the
//! native functions that the innermost of them called. Methods that are written in C have no file.

use poolscope_wire::script::{Call, Language};

use crate::model::profile::Location;
use crate::model::snapshot::Module;

/// Whether a location is a method of Ruby's.
pub fn is_ruby(location: &Location) -> bool {
    Call::of_word(location.address).is_some_and(|call| call.language == Language::Ruby)
}

/// Whether a location is a method that is written in C.
pub(crate) fn is_native(location: &Location) -> bool {
    is_ruby(location) && location.frames.iter().all(|frame| frame.file.is_none())
}

/// Whether a file of Ruby's comes with it: `/usr/lib/ruby/3.1.0/json/common.rb` does, and so does what is built into it;
/// what others installed beside it does not.
pub(crate) fn is_library(file: &str) -> bool {
    if file.starts_with("<internal:") {
        return true;
    }
    // Debian has what finds gems in another folder.
    const FINDS_GEMS: [&str; 3] = ["rubygems.rb", "rubygems/", "bundler"];
    let finds_gems = |(_, file): (&str, &str)| FINDS_GEMS.iter().any(|own| file.starts_with(own));
    is_of_version(file) || file.split_once("/ruby/vendor_ruby/").is_some_and(finds_gems)
}

/// Whether a file is Ruby: `ruby3.1`, `libruby-3.1.so.3.1`, or an extension that comes with it.
pub fn is_interpreter(module: &Module) -> bool {
    let name = module.name();
    let is_version = |behind: &str| behind.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    name.starts_with("libruby-")
        || name.starts_with("libruby.so")
        || name.strip_prefix("ruby").is_some_and(is_version)
        || (name.ends_with(".so") && is_of_version(&module.path))
}

/// Whether a file lies in the folder of a version, `ruby/3.1.0/`, and not among the gems there.
fn is_of_version(path: &str) -> bool {
    let is_version = |version: &str| version.starts_with(|first: char| first.is_ascii_digit()) && version.contains('.');
    let behind = path.split_once("/ruby/").and_then(|(_, behind)| behind.split_once('/'));
    behind.is_some_and(|(version, _)| is_version(version)) && !path.contains("/gems/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::module;

    #[test]
    fn what_comes_with_ruby_is_told_from_what_others_installed() {
        for (path, expected) in [
            ("/usr/lib/ruby/3.1.0/json/common.rb", true),
            ("/root/.rbenv/versions/3.3.0/lib/ruby/3.3.0/set.rb", true),
            ("<internal:kernel>", true),
            ("/usr/lib/ruby/vendor_ruby/rubygems/specification.rb", true),
            ("/usr/local/lib/ruby/gems/3.3.0/gems/rack-3.0/lib/rack/request.rb", false),
            ("/var/lib/gems/3.1.0/gems/rails-7.1/lib/rails.rb", false),
            ("/usr/lib/ruby/vendor_ruby/rack/request.rb", false),
            ("/srv/ruby/app.rb", false),
            ("app.rb", false),
            ("(eval)", false),
        ] {
            assert_eq!(is_library(path), expected, "{path}");
        }
    }

    #[test]
    fn ruby_is_known_by_its_files() {
        for (path, expected) in [
            ("/usr/bin/ruby3.1", true),
            ("/usr/local/bin/ruby", true),
            ("/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2", true),
            ("/usr/local/lib/libruby.so.3.4.1", true),
            ("/usr/lib/x86_64-linux-gnu/ruby/3.1.0/json/ext/parser.so", true),
            ("/usr/local/lib/ruby/gems/3.3.0/extensions/x86_64-linux/3.3.0/nokogiri/nokogiri.so", false),
            ("/usr/lib/x86_64-linux-gnu/ruby/vendor_ruby/3.1.0/ox/ox.so", false),
            ("/usr/bin/rubyish", false),
        ] {
            assert_eq!(is_interpreter(&module(path)), expected, "{path}");
        }
    }
}
