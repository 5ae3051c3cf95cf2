//! Functions of Java's machine in native stacks: those of Java, Kotlin, Scala and others that are compiled to its code.
//!
//! Java, started with `-XX:+PreserveFramePointer`, is called in stacks as native functions are. `jcmd PID
//! Compiler.perfmap` (from JDK 17 on) has it name the functions that it has compiled so far in the process's perf map,
//! `-XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit` at its end; agents name them as they are compiled. Those that are interpreted have no names.

use crate::model::profile::{Frame, Location};
use crate::model::snapshot::Module;

/// Packages of the machine's own library, and of the libraries of languages for it.
const LIBRARIES: &[&str] = &["java", "javax", "jdk", "sun", "com.sun", "kotlin", "scala", "clojure", "groovy"];

/// Files of the machine and of its library, as they are called.
const FILES: &[&str] = &[
    "java",
    "libjvm.so",
    "libjli.so",
    "libjava.so",
    "libjimage.so",
    "libverify.so",
    "libzip.so",
    "libnio.so",
    "libnet.so",
    "libextnet.so",
    "libinstrument.so",
    "libmanagement.so",
    "libmanagement_ext.so",
    "libprefs.so",
    "libj2pkcs11.so",
];

/// Whether a location is a function that does not come with the machine.
pub(crate) fn is_java(location: &Location) -> bool {
    classes(location).any(|class| !is_library_class(class))
}

/// Whether it is a function of the machine's library.
pub(crate) fn is_library(location: &Location) -> bool {
    classes(location).any(is_library_class)
}

/// Whether a location is in the machine, or in code that it made for itself: what interprets functions, and what calls
/// compiled ones from there and back.
pub(crate) fn is_machine(location: &Location, module: Option<&Module>) -> bool {
    match module {
        Some(module) => FILES.contains(&module.name()),
        None => location.frames.iter().any(|frame| {
            let name = frame.name.as_str();
            let is_stub = ["StubRoutines", "vtable chunks"].iter().any(|begin| name.starts_with(begin))
                || ["adapters", "Blob", "_stub", " stub"].iter().any(|end| name.ends_with(end));
            name == "Interpreter" || is_stub || *frame == Location::placeholder(None, location.address)
        }),
    }
}

/// Whether a file is the machine.
pub(crate) fn is_jvm(module: &Module) -> bool {
    module.name() == "libjvm.so"
}

/// Whether a function is one by which Java's functions call native ones.
pub(crate) fn is_called_by_java(frame: &Frame) -> bool {
    ["Java_", "Unsafe_", "JVM_"].iter().any(|begin| frame.name.starts_with(begin))
}

/// The classes of the functions of a location in generated code.
fn classes(location: &Location) -> impl Iterator<Item = &str> {
    let generated = location.module.is_none().then_some(&location.frames);
    generated.into_iter().flatten().filter(|frame| frame.file.is_none()).filter_map(|frame| class(&frame.name))
}

/// The class of a function as the machine writes it (`void org.app.Cache.insert(int)`), or as agents do
/// (`Lorg/app/Cache;::insert`).
fn class(name: &str) -> Option<&str> {
    if let Some((class, _)) = name.strip_prefix('L').and_then(|rest| rest.split_once(";::")) {
        return Some(class).filter(|class| !class.contains(' '));
    }
    let (_type, function) = name.strip_suffix(')')?.split_once('(')?.0.split_once(' ')?;
    let (class, _) = function.rsplit_once('.')?;
    (!class.is_empty() && !function.contains([' ', ':', '['])).then_some(class)
}

fn is_library_class(class: &str) -> bool {
    LIBRARIES.iter().any(|package| {
        let mut class = class.bytes().map(|byte| if byte == b'/' { b'.' } else { byte });
        package.bytes().chain([b'.']).all(|byte| class.next() == Some(byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::module;

    fn location(name: &str) -> Location {
        Location { address: 1, module: None, frames: vec![Frame { name: name.to_owned(), ..Frame::default() }] }
    }

    #[test]
    fn functions_of_a_program_are_told_from_those_of_the_library_and_the_machine() {
        for own in [
            "void Srv.handle(int)",
            "void org.app.Cache.<init>(int, java.lang.Object)",
            "java.lang.Object org.app.Cache$1.get()",
            "void Srv$$Lambda$14/0x0000000800c03000.run()",
            "byte[] javanese.Food.cook(long[])",
            "Lorg/app/Cache;::insert",
        ] {
            assert!(is_java(&location(own)) && !is_library(&location(own)), "{own}");
            assert!(!is_machine(&location(own), None), "{own}");
        }
        for librarys in [
            "long jdk.internal.misc.Unsafe.allocateMemory0(long)",
            "void java.util.zip.Deflater.<init>(int, boolean)",
            "kotlin.Unit kotlin.io.ConsoleKt.println()",
            "Ljava/util/HashMap;::put",
        ] {
            assert!(!is_java(&location(librarys)) && is_library(&location(librarys)), "{librarys}");
        }
        for machines in [
            "Interpreter",
            "I2C/C2I adapters",
            "StubRoutines (1)",
            "SafepointBlob",
            "vtable chunks",
            "wrong_method_stub",
            &Location::placeholder(None, 1).name,
        ] {
            assert!(!is_java(&location(machines)) && !is_library(&location(machines)), "{machines}");
            assert!(is_machine(&location(machines), None), "{machines}");
        }
        for others in
            ["int32 [App] App.Cache::Insert(int32)[Tier0]", "JS:broken", "Builtin:ArrayMap", "julia_f_12", "a.b()"]
        {
            assert!(!is_java(&location(others)) && !is_library(&location(others)), "{others}");
        }
    }

    #[test]
    fn the_machine_is_known_by_its_files() {
        for (path, expected) in [
            ("/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so", true),
            ("/usr/lib/jvm/java-17-openjdk-amd64/lib/libzip.so", true),
            ("/usr/lib/jvm/java-17-openjdk-amd64/bin/java", true),
            ("/usr/lib/x86_64-linux-gnu/libzip.so.4.0", false),
            ("/tmp/librocksdbjni123.so", false),
        ] {
            assert_eq!(is_machine(&location("f"), Some(&module(path))), expected, "{path}");
        }
    }
}
