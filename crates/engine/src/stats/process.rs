//! Identity of a process on its host.

use super::layout::HOST_WORDS;
use std::os::unix::fs::MetadataExt;

/// Start of a process in ticks since boot; `None` without such a process.
pub fn pid_start(pid: u32) -> Option<u64> {
    stat_field(pid, 19)?.parse().ok()
}

/// True if a process has ended but its parent has not yet collected its status.
pub fn is_zombie(pid: u32) -> bool {
    stat_field(pid, 0).is_some_and(|state| state == "Z")
}

/// A field of `/proc/PID/stat` after the name, counted from 0 (proc(5)).
fn stat_field(pid: u32, at: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(at).map(str::to_owned)
}

/// Inode of the PID namespace; 0 if unknown.
pub fn pid_space() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

/// This host's name, with `_` for characters that are not safe in a file name.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let clean = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' || c == '.' {
            c
        } else {
            '_'
        }
    };
    name.trim()
        .chars()
        .take(HOST_WORDS * 8)
        .map(clean)
        .collect()
}
