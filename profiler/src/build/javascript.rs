//! Functions of JavaScript in native stacks, and the machine that runs them.
//!
//! Node, started with `--perf-basic-prof`, names the functions that V8 compiles in the process's perf map, and with
//! `--interpreted-frames-native-stack` those that it only interprets, too. Its own library is written in JavaScript as
//! well, in files that are called `node:buffer` and the like.

use crate::model::profile::{Frame, Location};
use crate::model::snapshot::Module;

/// Whether a location is a function of JavaScript's, or of what is compiled to that, and does not come with Node. Only
/// the perf map gives a file to code of no module.
pub(crate) fn is_javascript(location: &Location) -> bool {
    let is_script = |frame: &Frame| {
        let ending = frame.file.as_deref().and_then(|file| Some(file.rsplit_once('.')?.1));
        matches!(ending, Some("js" | "mjs" | "cjs" | "jsx" | "ts" | "mts" | "cts" | "tsx"))
    };
    location.module.is_none() && location.frames.iter().any(|frame| is_script(frame) && !is_library(frame))
}

/// Whether it is a function of Node's library.
pub(crate) fn is_nodes(location: &Location) -> bool {
    location.module.is_none() && location.frames.iter().any(is_library)
}

fn is_library(frame: &Frame) -> bool {
    frame.file.as_deref().is_some_and(|file| file.starts_with("node:"))
}

/// Whether a location is in Node, in V8, or in code that V8 made for itself. It names none of its copy of the built-in
/// functions, which it makes to have them near.
pub(crate) fn is_machine(location: &Location, module: Option<&Module>) -> bool {
    match module {
        Some(module) => is_node(module),
        None => location.frames.iter().any(|frame| {
            let kind = frame.name.split_once(':').map(|(kind, _)| kind);
            let is_built_in = matches!(kind, Some("Builtin" | "BytecodeHandler" | "Handler" | "RegExp" | "Stub"));
            is_built_in || *frame == Location::placeholder(None, location.address)
        }),
    }
}

/// Whether a file is Node or V8: `node`, `libnode.so.108`.
pub(crate) fn is_node(module: &Module) -> bool {
    let name = module.name();
    matches!(name, "node" | "nodejs")
        || ["libnode.so", "libv8.so", "libuv.so"].iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::module;

    fn location(name: &str, file: &str, line: u32) -> Location {
        let file = Some(file.to_owned()).filter(|file| !file.is_empty());
        let frame =
            Frame { name: name.to_owned(), file, line: Some(line).filter(|&line| line > 0), ..Frame::default() };
        Location { address: 1, module: None, frames: vec![frame] }
    }

    #[test]
    fn functions_of_a_program_are_told_from_those_of_node_and_of_v8() {
        let own = location("handle", "/srv/app.js", 3);
        let nodes = location("alloc", "node:buffer", 380);
        let builtin = location("Builtin:ArrayMap", "", 0);
        let nameless = Location { frames: vec![Location::placeholder(None, 1)], ..location("", "", 0) };
        let java = location("Lorg/Cache;::insert", "", 0);
        assert!(is_javascript(&own) && !is_nodes(&own) && !is_machine(&own, None));
        assert!(!is_javascript(&nodes) && is_nodes(&nodes) && !is_machine(&nodes, None));
        assert!(!is_javascript(&builtin) && !is_nodes(&builtin) && is_machine(&builtin, None));
        assert!(!is_javascript(&nameless) && is_machine(&nameless, None));
        assert!(!is_javascript(&java) && !is_nodes(&java) && !is_machine(&java, None));
    }

    #[test]
    fn the_machine_is_known_by_its_files() {
        for (path, expected) in [
            ("/usr/bin/node", true),
            ("/usr/lib/x86_64-linux-gnu/libnode.so.108", true),
            ("/usr/lib/x86_64-linux-gnu/libuv.so.1.0.0", true),
            ("/srv/node_modules/sqlite3/build/Release/node_sqlite3.node", false),
            ("/usr/bin/nodemon-native", false),
        ] {
            assert_eq!(is_machine(&location("f", "", 0), Some(&module(path))), expected, "{path}");
        }
    }
}
