//! The settings `FI_MARLINE_*`: the engine's table, registered and read as libfabric parameters.

use crate::base::{host, log};
use marline_codes::Code;
use marline_engine::settings::{
    former_in, unknown_in, Kind, Setting, Settings, CARRIED_BY_OPEN_MPI, PREFIX, TABLE,
};
use std::sync::atomic::{AtomicBool, Ordering};

/// Registers every setting with libfabric.
pub(crate) fn define_all() {
    for row in TABLE.iter().filter(|row| is_of_libfabric(row)) {
        host::param_define(row.name, &help(row));
    }
}

/// Returns whether libfabric is told about the setting. libfabric logs the values of its parameters
/// and shows them in `fi_info -e`, so it is told no secrets.
fn is_of_libfabric(row: &Setting) -> bool {
    !row.test && row.kind != Kind::Secret
}

/// The text of a setting, by the name of its row. (libfabric is told no former names, keys of
/// experiments or secrets.)
fn value_of(name: &str) -> Option<String> {
    let row = TABLE.iter().find(|row| row.name == name);
    if row.is_some_and(is_of_libfabric) {
        return host::param_get(name);
    }
    let variable = format!("{PREFIX}{}", name.to_ascii_uppercase());
    let given = std::env::var(&variable).ok();
    let secret = row.is_some_and(|row| row.kind == Kind::Secret);
    given.or_else(|| match secret {
        true => std::env::var(format!("{CARRIED_BY_OPEN_MPI}{variable}")).ok(),
        false => None,
    })
}

fn help(row: &Setting) -> String {
    let default = match row.default {
        "" => "none",
        default => default,
    };
    format!(
        "{} Takes {}; default: {default}.",
        row.help,
        row.kind.allowed()
    )
}

/// Warns once per process about misspelt or unusable settings. Called from `fi_getinfo`, since many
/// programs, such as `fi_info`, call nothing else.
pub(crate) fn warn_once() {
    // (No lock or `Once`, since a fork may happen at any time.)
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let names: Vec<_> = names.collect();
    for notice in former_in(&names) {
        log::warn(Code::SettingFormer, &notice);
    }
    for complaint in unknown_in(&names) {
        let text = format!("{complaint} (`fi_info -e` lists all of them)");
        log::warn(Code::SettingWrong, &text);
    }
    if let Err(why) = Settings::from_lookup(value_of) {
        log::warn(Code::SettingWrong, &format!("settings: {why}"));
    }
}

/// The user's settings. The error is a text for people.
pub(crate) fn lookup() -> Result<Settings, String> {
    Settings::from_lookup(value_of)
}

/// Returns whether sends may borrow the application's memory.
pub(crate) fn borrows() -> bool {
    Settings::from_lookup(value_of).is_ok_and(|settings| settings.borrow)
}

/// Returns whether remote memory is offered to applications. (Opening a domain reports invalid
/// settings.)
pub(crate) fn offers_remote() -> bool {
    Settings::from_lookup(value_of).is_ok_and(|settings| settings.rma)
}

/// Bytes of an address blob.
pub(crate) fn address_bytes() -> usize {
    Settings::from_lookup(value_of)
        .unwrap_or_default()
        .address_bytes
}
