//! Programs in a language that a machine runs, whose functions nobody names.

use crate::build::language::Language;
use crate::build::{java, javascript, python, ruby};
use crate::findings::{Facts, Finding, Severity, Subject};
use crate::model::profile::{Profile, Site};
use crate::model::snapshot::Module;

/// Nobody needs to know who has less.
const LEAST: f64 = 1_048_576.0;

/// The first version that can name its functions to others.
const NAMES_FUNCTIONS: (u32, u32) = (3, 12);

/// Call sites that are a machine's, of one that could say for which functions it works.
pub(super) fn without_its_functions(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let Some(profile) = facts.profile else { return };
    for language in Language::ALL {
        without_those_of(language, profile, findings);
    }
}

fn without_those_of(language: Language, profile: &Profile, findings: &mut Vec<Finding>) {
    let is_able = |module: &Module| match language {
        Language::Python => python::version(module) >= Some(NAMES_FUNCTIONS),
        Language::JavaScript => javascript::is_node(module),
        Language::Java => java::is_jvm(module),
        Language::Ruby => ruby::is_interpreter(module),
    };
    let is_able: Vec<bool> = profile.modules.iter().map(is_able).collect();
    if !is_able.contains(&true) || profile.locations.iter().any(|location| Language::of(location) == Some(language)) {
        return;
    }
    // The threads of Java's machine, which collect and compile, work for no function.
    let is_meant = |site: &&Site| match language {
        Language::Java => profile.frames(site).any(java::is_called_by_java),
        Language::Python | Language::JavaScript | Language::Ruby => is_in(profile, site, &is_able),
    };
    let of_interpreter = profile.sites.iter().filter(is_meant);
    let bytes: f64 = of_interpreter.map(|site| site.in_use.bytes).sum();
    if bytes < LEAST || bytes < profile.totals().in_use.bytes / 4.0 {
        return;
    }
    let (rule, sentence) = match language {
        Language::Python => (
            "python_unnamed",
            "Call sites are those of Python's interpreter: started with PYTHONPERFSUPPORT=1, or -X perf, it names the \
             functions of Python's that it works for.",
        ),
        Language::JavaScript => (
            "javascript_unnamed",
            "Call sites are those of Node: started with NODE_OPTIONS='--perf-basic-prof \
             --interpreted-frames-native-stack' it names the functions of JavaScript that it works for.",
        ),
        Language::Java => (
            "java_unnamed",
            "Call sites are native functions that Java calls: started with -XX:+PreserveFramePointer, and then asked by \
             `jcmd PID Compiler.perfmap`, it names the functions that it has compiled.",
        ),
        Language::Ruby => (
            "ruby_unnamed",
            "Call sites are those of Ruby's interpreter: the library knows how to read which methods are running of Ruby \
             3.1, 3.3 and 3.4, and not of this one.",
        ),
    };
    findings.push(Finding {
        severity: Severity::Note,
        rule,
        sentence: sentence.to_owned(),
        evidence: vec![("interpreter_bytes", bytes)],
        subject: Subject::Samples,
    });
}

/// Whether a stack has a function of one of these modules.
fn is_in(profile: &Profile, site: &Site, modules: &[bool]) -> bool {
    let of_location = |index: &usize| profile.locations.get(*index).and_then(|location| location.module);
    site.locations.iter().filter_map(of_location).any(|module| modules.get(module) == Some(&true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::testing::{MIB, calm, of_rule, profile};
    use crate::model::testing;

    fn is_said(profile: &Profile) -> bool {
        is_said_of(profile, "python_unnamed")
    }

    fn is_said_of(profile: &Profile, rule: &'static str) -> bool {
        let snapshot = calm();
        !of_rule(&Facts::of(&snapshot, Some(profile)).findings(), rule).is_empty()
    }

    #[test]
    fn node_that_names_no_functions_is_said() {
        let mut unnamed = profile(&[("main;Builtins_JSEntry;AllocateUninitialized", 2.0 * MIB)]);
        unnamed.modules[0].path = "/usr/bin/node".to_owned();
        assert!(is_said_of(&unnamed, "javascript_unnamed") && !is_said(&unnamed));
        let location = &mut std::sync::Arc::make_mut(&mut unnamed.locations)[1];
        (location.module, location.frames[0].file) = (None, Some("/srv/app.js".to_owned()));
        assert!(!is_said_of(&unnamed, "javascript_unnamed"), "it does");
    }

    #[test]
    fn java_that_names_no_functions_is_said() {
        let mut unnamed = profile(&[("main;run;Java_org_rocksdb_RocksDB_open;open", 2.0 * MIB), ("main;gc", MIB)]);
        assert!(!is_said_of(&unnamed, "java_unnamed"), "no machine");
        unnamed.modules[0].path = "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so".to_owned();
        assert!(is_said_of(&unnamed, "java_unnamed"));
        let location = &mut std::sync::Arc::make_mut(&mut unnamed.locations)[2];
        (location.module, location.frames[0].file) = (None, None);
        location.frames[0].name = "void org.app.Store.run()".to_owned();
        assert!(!is_said_of(&unnamed, "java_unnamed"), "it does");
        unnamed.sites.remove(0);
        assert!(!is_said_of(&unnamed, "java_unnamed"), "nothing is Java's");
    }

    #[test]
    fn an_interpreter_that_could_name_its_functions_is_said() {
        let mut unnamed = profile(&[("main;eval;list_resize", 2.0 * MIB), ("main;eval", MIB)]);
        for (path, expected) in [
            ("/usr/bin/python3.12", true),
            ("/usr/lib/libpython3.14t.so.1.0", true),
            ("/usr/bin/python3.11", false),
            ("/usr/bin/sample", false),
        ] {
            unnamed.modules[0].path = path.to_owned();
            assert_eq!(is_said(&unnamed), expected, "{path}");
        }
        let mut named = profile(&[("main;eval;f (a.py);list_resize", 2.0 * MIB), ("main;eval", MIB)]);
        named.modules[0].path = "/usr/bin/python3.12".to_owned();
        testing::name_python(&mut named);
        assert!(!is_said(&named), "it does");
        unnamed.modules[0].path = "/usr/lib/libruby-3.2.so.3.2".to_owned();
        assert!(is_said_of(&unnamed, "ruby_unnamed"), "of a version that is not read");
        unnamed.modules[0].path = "/usr/bin/python3.12".to_owned();
        unnamed.sites.iter_mut().for_each(|site| site.in_use.bytes /= 8.0);
        assert!(!is_said(&unnamed), "it is little");
    }
}
