//! What the process was started with.

use std::env;
use std::sync::Once;

use super::{Config, SETTINGS};

const PREFIX: &str = "POOLSCOPE_GPU_";

/// Variables of the prefix that are no pool's settings: who opens devices reads the first, Python the second.
const OTHERS: [&str; 2] = ["POOLSCOPE_GPU_DEVICE", "POOLSCOPE_GPU_LIB"];

impl Config {
    /// These settings, with what the environment says in the place of its own. What it says that is no value, and
    /// variables that no setting has, are named on standard error, once. The caller of a set-uid program says nothing.
    #[must_use]
    pub fn with_environment(mut self) -> Config {
        static NAMED: Once = Once::new();
        // SAFETY: it takes no memory.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return self;
        }
        let mut wrong = Vec::new();
        for (at, setting) in SETTINGS.iter().enumerate() {
            let Some(value) = env::var_os(setting.variable) else { continue };
            match value.to_str().and_then(|value| setting.range.parse(value)) {
                Some(word) => self.put(at, word),
                None => wrong.push(format!(
                    "{}={} is not valid, {} is used; it takes {}",
                    setting.variable,
                    value.to_string_lossy(),
                    setting.range.show(self.words()[at]),
                    setting.range
                )),
            }
        }
        NAMED.call_once(|| {
            let known = |name: &str| OTHERS.contains(&name) || SETTINGS.iter().any(|setting| setting.variable == name);
            for (name, _) in env::vars_os() {
                let name = name.to_string_lossy();
                if name.starts_with(PREFIX) && !known(&name) {
                    wrong.push(format!("{name} is unknown and without effect; poolscope_gpu.h lists the variables"));
                }
            }
            wrong.iter().for_each(|words| eprintln!("poolscope: {words}"));
        });
        self
    }
}
