//! What the program says of the settings: by a builder, or by name.

use core::ffi::CStr;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::environment::is_started;
use super::{Change, Config, SETTINGS, Setting, store};
use crate::kernel::message::Message;

/// Why settings were not changed.
#[derive(Clone, Copy, Debug)]
pub enum SettingError {
    /// There is no setting of this name.
    Unknown,
    /// The value is none of those that the setting takes.
    NotValid(&'static Setting),
    /// The setting only changes before the first allocation of the process, and that is past.
    TooLate(&'static Setting),
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingError::Unknown => {
                f.write_str("no setting has this name; there are ")?;
                for (at, setting) in SETTINGS.iter().enumerate() {
                    write!(f, "{}{}", if at == 0 { "" } else { ", " }, setting.key)?;
                }
                Ok(())
            }
            SettingError::NotValid(setting) => write!(f, "{} takes {}", setting.key, setting.range),
            SettingError::TooLate(setting) => write!(
                f,
                "{} can't change after the first allocation of the process; set it in the environment ({}) or, in Rust, with the allocator \
                 (`poolscope_alloc::Configured`)",
                setting.key,
                super::range::Printable(setting.variable.to_bytes())
            ),
        }
    }
}

impl core::error::Error for SettingError {}

impl Config {
    /// Puts the settings in force: all of them, or, on an error, none.
    ///
    /// Before the first allocation of the process they take the place of the defaults, and the environment has the last
    /// word. Later they hold at once, whatever the environment said.
    pub fn apply(self) -> Result<(), SettingError> {
        let changes = || SETTINGS.iter().enumerate().zip(self.words()).filter_map(|(row, word)| Some((row, word?)));
        for ((at, setting), word) in changes() {
            check(at, setting, word)?;
        }
        for ((at, _), word) in changes() {
            put(at, word);
        }
        Ok(())
    }
}

impl Default for Config {
    fn default() -> Self {
        Config::new()
    }
}

/// Takes `config` for the program's defaults, if nothing was allocated yet. For an allocator that has its settings with
/// it and calls this before it allocates. A value that is none is named on standard error.
#[inline]
pub fn start_with(config: &Config) {
    if !is_started() {
        start_with_cold(config);
    }
}

#[cold]
fn start_with_cold(config: &Config) {
    if let Err(error) = config.apply() {
        let mut message = Message::new("");
        // A message that does not fit is cut.
        let _ = write!(message, "the program's settings are not used: {error}");
        message.print();
    }
}

fn check(at: usize, setting: &'static Setting, word: u64) -> Result<(), SettingError> {
    if !setting.range.allows(word) {
        return Err(SettingError::NotValid(setting));
    }
    if setting.change == Change::AtStart && is_started() && store::get(at) != word {
        return Err(SettingError::TooLate(setting));
    }
    Ok(())
}

fn put(at: usize, word: u64) {
    // A sample takes calls that a plain pool does not make.
    if at == super::Index::period as usize && is_started() && super::current().plain() {
        return;
    }
    store::put(at, word);
    // Before the start there is no segment that states a period.
    if at == super::Index::period as usize && is_started() {
        period_has_changed();
    }
}

/// What is to be called when the period has changed while the program runs; null before it is said.
static ON_PERIOD_CHANGE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Has `f` called when the period has changed while the program runs.
pub(crate) fn on_period_change(f: fn()) {
    ON_PERIOD_CHANGE.store(f as *mut (), Ordering::Release);
}

fn period_has_changed() {
    let f = ON_PERIOD_CHANGE.load(Ordering::Acquire);
    if !f.is_null() {
        // SAFETY: only `on_period_change` stores there, and it takes just such a function.
        let f = unsafe { core::mem::transmute::<*mut (), fn()>(f) };
        f();
    }
}

fn find(key: &[u8]) -> Result<(usize, &'static Setting), SettingError> {
    SETTINGS.iter().enumerate().find(|(_, setting)| setting.key.as_bytes() == key).ok_or(SettingError::Unknown)
}

/// Changes a setting by its name, to a value as the environment has it. Only what can change at any time.
pub fn set(key: &[u8], text: &CStr) -> Result<(), SettingError> {
    let (at, setting) = find(key)?;
    if setting.change == Change::AtStart {
        return Err(SettingError::TooLate(setting));
    }
    put(at, setting.range.parse(text).ok_or(SettingError::NotValid(setting))?);
    Ok(())
}

/// A setting's value in force by its name, as the environment has it.
pub fn get(key: &[u8]) -> Result<impl fmt::Display, SettingError> {
    let (at, setting) = find(key)?;
    Ok(setting.range.show(store::get(at)))
}
