//! Rules for programs of the system: what they lose each time that they run, as LeakSanitizer and valgrind see it, too.
//! Who checks a command of their own that runs such a program can do nothing about it, and the programs end soon.
//!
//! A rule is known by the executable's path, since a system's programs have no symbols. It holds only where that file is
//! one of the system's: in its folders, root's, and for nobody else to write. Of its blocks it holds those alone whose
//! whole stack is in such files: what an extension loses that somebody built and had loaded into it is reported. Code
//! that a virtual machine generates is its own, and who is called from it is asked for no more of the stack.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::model::profile::{Profile, Site};
use crate::words::pattern;

/// Folders of the system's own files. What an administrator installs by hand is in `/usr/local`.
const FOLDERS: &[&str] = &["/usr/bin/", "/usr/sbin/", "/usr/lib", "/bin/", "/sbin/", "/lib"];

const COREUTILS: &str = "what only local variables of main held when it returned, and parts of its arguments";
/// Those of GNU coreutils: which of them lose something differs by version and by what they are asked for.
const OF_COREUTILS: &[&str] = &[
    "^/usr/bin/chcon$",
    "^/usr/bin/chgrp$",
    "^/usr/bin/chmod$",
    "^/usr/bin/chown$",
    "^/usr/bin/comm$",
    "^/usr/bin/cp$",
    "^/usr/bin/csplit$",
    "^/usr/bin/cut$",
    "^/usr/bin/date$",
    "^/usr/bin/dd$",
    "^/usr/bin/df$",
    "^/usr/bin/dir$",
    "^/usr/bin/du$",
    "^/usr/bin/expr$",
    "^/usr/bin/factor$",
    "^/usr/bin/fmt$",
    "^/usr/bin/install$",
    "^/usr/bin/join$",
    "^/usr/bin/ln$",
    "^/usr/bin/ls$",
    "^/usr/bin/mkdir$",
    "^/usr/bin/mktemp$",
    "^/usr/bin/mv$",
    "^/usr/bin/nl$",
    "^/usr/bin/numfmt$",
    "^/usr/bin/od$",
    "^/usr/bin/paste$",
    "^/usr/bin/pr$",
    "^/usr/bin/ptx$",
    "^/usr/bin/readlink$",
    "^/usr/bin/realpath$",
    "^/usr/bin/rm$",
    "^/usr/bin/seq$",
    "^/usr/bin/shred$",
    "^/usr/bin/shuf$",
    "^/usr/bin/sort$",
    "^/usr/bin/split$",
    "^/usr/bin/stat$",
    "^/usr/bin/stty$",
    "^/usr/bin/tac$",
    "^/usr/bin/tail$",
    "^/usr/bin/tee$",
    "^/usr/bin/touch$",
    "^/usr/bin/tr$",
    "^/usr/bin/truncate$",
    "^/usr/bin/tsort$",
    "^/usr/bin/uniq$",
    "^/usr/bin/vdir$",
    "^/usr/bin/wc$",
    "^/usr/bin/who$",
];
const COMPILER: &str = "options, names of files and specs of one compilation, which the end of the process frees";

/// Those that run code which they generate.
const VIRTUAL_MACHINES: &[&str] = &["^/usr/lib/jvm/*/bin/*$", "^/usr/bin/mono*$"];

/// Those that run functions of a language, which the stacks of what they allocate have.
const INTERPRETERS: &[&str] = &["^/usr/bin/ruby*$"];

/// Executables, as patterns of their paths (`*`, `^`, `$`), and what they lose.
const RULES: &[(&[&str], &str)] = &[
    (
        &["^/usr/bin/perl$", "^/usr/bin/perl5*$"],
        "all that its interpreter holds: at destruct level 0, the usual one, perl_destruct leaves that to the kernel, and \
         perl_free drops the interpreter",
    ),
    (INTERPRETERS, "what its objects held: ruby_vm_destruct frees the heap of objects, and not what they point to"),
    (&["^/usr/bin/bash$", "^/bin/bash$"], "the commands it was in when a subshell or exit left them (longjmp)"),
    (&["^/usr/bin/dash$", "^/bin/dash$", "^/usr/bin/ksh93$", "^/bin/ksh93$"], "the command of a trap for its end"),
    (&["^/usr/bin/posh$", "^/bin/posh$"], "words and lists that its commands were made of"),
    (
        &["^/usr/bin/git$", "^/usr/lib/git-core/*$"],
        "paths, lists of arguments and settings of its one command, which the end of the process frees",
    ),
    (OF_COREUTILS, COREUTILS),
    (
        &["^/usr/bin/busybox$", "^/bin/busybox$"],
        "what its commands leave to the end of the process (FEATURE_CLEAN_UP is off)",
    ),
    (&["^/usr/bin/hostname$", "^/bin/hostname$"], "the name that it has asked for"),
    (&["^/usr/bin/iconv$"], "the conversion that its main function held"),
    (&["^/usr/bin/pgrep$"], "the list of processes that it has looked for"),
    (&["^/usr/bin/ps$"], "formats of its columns, and lists that it has parsed"),
    (&["^/usr/sbin/killall5$", "^/sbin/killall5$"], "the list of processes that pidof has looked for"),
    (&["^/usr/sbin/sysctl$", "^/sbin/sysctl$"], "names of what it has asked for"),
    (&["^/usr/bin/column$"], "lines that it has read, and columns of its table"),
    (&["^/usr/bin/lsns$"], "its copies of the namespaces' names"),
    (&["^/usr/bin/sed$", "^/bin/sed$"], "parts of its script, of no bytes"),
    (&["^/usr/bin/dc$"], "the text of its last expression"),
    (&["^/usr/bin/locale$"], "names of the locales that it has listed"),
    (&["^/usr/bin/script$"], "names and formats of its log"),
    (&["^/usr/bin/rsync$"], "patterns of files, and buffers of its transfer"),
    (&["^/usr/bin/man$", "^/usr/bin/mandb$"], "pages that it has found, and commands that it has made of them"),
    (&["^/usr/bin/emacs*$"], "a buffer of its start"),
    (
        &["^/usr/lib/postgresql/*/bin/postgres$"],
        "its copy of the environment, which names of processes are written over, and settings of its start",
    ),
    (&["^/usr/bin/gdb$"], "names and types of symbols that it has read"),
    (
        VIRTUAL_MACHINES,
        "options of the virtual machine, names of its modules, and what only code points to that it has generated",
    ),
    (&["^/usr/bin/su$", "^/bin/su$", "^/usr/bin/passwd$"], "its copies of words, as PAM's modules wanted them"),
    (&["^/usr/bin/tar$", "^/bin/tar$"], "names and buffers of its work"),
    (&["^/usr/bin/dpkg-query$"], "the list of packages that it has sorted"),
    (&["^/usr/bin/gcc$", "^/usr/bin/gcc-*$", "^/usr/bin/*-linux-gnu*-gcc-*$"], COMPILER),
    (&["^/usr/bin/g++$", "^/usr/bin/g++-*$", "^/usr/bin/*-linux-gnu*-g++-*$"], COMPILER),
    (&["^/usr/bin/cpp$", "^/usr/bin/cpp-*$", "^/usr/bin/*-linux-gnu*-cpp-*$"], COMPILER),
    (&["^/usr/lib*/gcc/*/cc1$", "^/usr/lib*/gcc/*/cc1plus$", "^/usr/lib*/gcc/*/collect2$"], COMPILER),
    (&["^/usr/lib*/gcc/*/lto1$", "^/usr/lib*/gcc/*/lto-wrapper$"], COMPILER),
    (&["^/usr/bin/gfortran$", "^/usr/bin/gfortran-*$", "^/usr/bin/*-linux-gnu*-gfortran-*$"], COMPILER),
    (&["^/usr/bin/gccgo-*$", "^/usr/bin/*-linux-gnu*-gccgo-*$", "^/usr/bin/*-linux-gnu*-gdc-*$"], COMPILER),
    (&["^/usr/bin/gnat*$", "^/usr/bin/*-linux-gnu*-gnat*$"], COMPILER),
    (
        &["^/usr/lib*/gcc/*/f951$", "^/usr/lib*/gcc/*/gnat1$", "^/usr/lib*/gcc/*/go1$", "^/usr/lib*/gcc/*/d21$"],
        COMPILER,
    ),
    (&["^/usr/lib/erlang/*/bin/inet_gethost$"], "a name that it has looked up"),
    (&["^/usr/bin/as$", "^/usr/bin/*-linux-gnu*-as$"], "tables of the file that it has assembled"),
    (&["^/usr/bin/ld.bfd$", "^/usr/bin/*-linux-gnu*-ld.bfd$"], "tables of the files that it has linked"),
];

/// What each rule is for, and why.
pub(super) fn rules() -> impl Iterator<Item = (String, &'static str)> {
    RULES.iter().map(|&(paths, loses)| (format!("program {}, and code of the system in it", paths.join(" or ")), loses))
}

/// A program of the system's that a rule is for.
#[derive(Debug)]
pub(super) struct SystemProgram<'a> {
    path: &'a str,
    loses: &'static str,
    /// It runs code that is in no file: what it allocates for that is its own.
    runs_others: bool,
    /// Of each module of the profile, whether it is one of the system's files.
    of_system: Vec<bool>,
}

impl<'a> SystemProgram<'a> {
    /// The program of a profile.
    pub(super) fn of(profile: &'a Profile) -> Option<Self> {
        let path = profile.main.as_str();
        let is_named = |paths: &[&str]| paths.iter().any(|wanted| pattern::matches(wanted, path));
        let &(_, loses) = RULES.iter().find(|(paths, _)| is_named(paths)).filter(|_| is_of_system(path))?;
        let of_system = profile.modules.iter().map(|module| is_of_system(&module.path)).collect();
        let runs_others = is_named(VIRTUAL_MACHINES) || is_named(INTERPRETERS);
        Some(Self { path, loses, runs_others, of_system })
    }

    /// Nothing but code of the system asked for the memory of this site.
    pub(super) fn holds(&self, profile: &Profile, site: &Site) -> bool {
        let module = |&location: &usize| profile.locations.get(location).and_then(|location| location.module);
        let modules = || site.locations.iter().map(module);
        let asked = if self.runs_others { modules().take_while(Option::is_some).count() } else { site.locations.len() };
        let is_of_system = |module: Option<usize>| module.is_some_and(|at| self.of_system.get(at) == Some(&true));
        asked > 0 && (self.runs_others || !site.incomplete) && modules().take(asked).all(is_of_system)
    }

    /// As reports name it.
    pub(super) fn reason(&self) -> String {
        format!("{}, a program of the system, loses {}", self.path, self.loses)
    }
}

/// Whether a file came with the system: it lies in a folder of the system's, is root's, and nobody else can write it.
fn is_of_system(path: &str) -> bool {
    // A path may lead elsewhere, by a link or by dots.
    let Ok(real) = fs::canonicalize(path) else { return false };
    let is_there = FOLDERS.iter().any(|folder| real.to_str().is_some_and(|real| real.starts_with(folder)));
    is_there && fs::metadata(&real).is_ok_and(|file| file.is_file() && file.uid() == 0 && file.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::profile::Location;
    use crate::model::snapshot::Module;

    /// A profile of a program with one site, whose stack is in these modules.
    fn profile(main: &str, stack: &[&str]) -> Profile {
        let module = |path: &&str| Module {
            start: 0,
            end: 0,
            load_bias: 0,
            build_id: Vec::new(),
            file: 0,
            path: (*path).to_owned(),
            stacks: 0..0,
        };
        let location = |module| Location { module: Some(module), ..Location::default() };
        Profile {
            main: main.to_owned(),
            modules: stack.iter().map(module).collect(),
            locations: Arc::new((0..stack.len()).map(location).collect()),
            sites: vec![Site { locations: (0..stack.len()).collect(), ..Site::default() }],
            ..Profile::default()
        }
    }

    fn is_held(profile: &Profile) -> bool {
        SystemProgram::of(profile).is_some_and(|program| program.holds(profile, &profile.sites[0]))
    }

    #[test]
    fn a_rule_holds_for_code_of_the_system_in_the_systems_own_program_alone() {
        let folder = tempfile::tempdir().expect("there is room");
        let own = folder.path().join("own.so");
        fs::write(&own, "").expect("is written");
        let own = own.to_str().expect("a path");
        assert!(is_held(&profile("/usr/bin/date", &["/usr/bin/date", "/bin/sh"])));
        // A frame of anything else, a file that is not there, and code in no file.
        assert!(!is_held(&profile("/usr/bin/date", &["/usr/bin/date", own])));
        assert!(!is_held(&profile("/usr/bin/date", &["/usr/bin/date", "/usr/lib/none.so"])));
        assert!(!is_held(&profile("/usr/bin/date", &["/usr/bin/date", "[vdso]"])));
        let dots = format!("/usr/lib/../..{own}");
        assert!(!is_held(&profile("/usr/bin/date", &["/usr/bin/date", &dots])));
        // Another program, one of the name elsewhere, and a program without a rule.
        assert!(!is_held(&profile(own, &["/usr/bin/date"])));
        assert!(!is_held(&profile("/home/me/usr/bin/date", &["/usr/bin/date"])));
        assert!(!is_held(&profile("/bin/sh", &["/bin/sh"])));
        // A stack that is unknown, or of which a part is.
        assert!(!is_held(&profile("/usr/bin/date", &[])));
        let mut cut = profile("/usr/bin/date", &["/usr/bin/date"]);
        cut.sites[0].incomplete = true;
        assert!(!is_held(&cut));
    }

    #[test]
    fn generated_code_is_its_machines_own() {
        let java = "/usr/lib/jvm/any/bin/java";
        let generated = |stack: &[&str]| {
            let mut profile = profile(java, stack);
            for location in Arc::make_mut(&mut profile.locations) {
                let module = location.module.and_then(|module| profile.modules.get(module));
                location.module = location.module.filter(|_| module.is_some_and(|module| module.path != "generated"));
            }
            let of_system: Vec<bool> = profile.modules.iter().map(|module| is_of_system(&module.path)).collect();
            let program =
                |runs_others| SystemProgram { path: java, loses: "", runs_others, of_system: of_system.clone() };
            [true, false].map(|generates| program(generates).holds(&profile, &profile.sites[0]))
        };
        assert_eq!(generated(&["/bin/sh", "generated", "/tmp/own.so"]), [true, false]);
        assert_eq!(generated(&["/tmp/own.so", "generated", "/bin/sh"]), [false, false]);
        assert_eq!(
            generated(&["generated", "/bin/sh"]),
            [false, false],
            "generated code asks nobody for memory itself"
        );
        assert!(VIRTUAL_MACHINES.iter().any(|path| pattern::matches(path, java)));
    }
}
