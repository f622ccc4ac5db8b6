//! Removal of pages whose processes ended without removing them.

use super::page::DEFAULT_DIR;
use super::process::{host_name, pid_space, pid_start};
use super::reader::{list_pages, read_owner};
use crate::platform::owned;
use std::path::Path;

/// Removes such pages of this user from the directory shared by all processes.
pub(crate) fn clean_up() {
    let prefix = format!("marline-{}-", owned::user());
    remove_stale(Path::new(DEFAULT_DIR), &prefix, &host_name());
}

/// Removes the pages of this user's ended processes.
pub(crate) fn remove_stale(dir: &Path, prefix: &str, host: &str) {
    let space = pid_space();
    for path in list_pages(dir) {
        let name = path.file_name().and_then(|name| name.to_str());
        if !name.is_some_and(|name| name.starts_with(prefix)) {
            continue;
        }
        // Leaves pages alone that are invalid, since they may be under construction, and pages of
        // another container, whose processes are invisible from here.
        let Ok(who) = read_owner(&path) else {
            continue;
        };
        let ours = space != 0 && who.pid_space == space && who.host == host;
        if ours && pid_start(who.pid) != Some(who.pid_start) {
            let _ = std::fs::remove_file(&path);
        }
    }
}
