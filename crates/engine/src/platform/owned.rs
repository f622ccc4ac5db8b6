//! Files in directories where other users may put theirs, as /dev/shm and /tmp. A name of ours does
//! not make a file ours there: a link leads anywhere, a FIFO holds back whoever opens it, and what
//! another user wrote says what he likes. So files are opened without following or waiting, and
//! the open file is asked what it is and whose.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// How such files are opened (std closes all on exec besides).
const OPEN_FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// Opens for reading a file of this user. Root reads those of all users.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    open_checked(OpenOptions::new().read(true), path, readable)
}

/// Opens a file of this user, as `options` say.
pub fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    open_checked(options, path, |found| found.is_file() && is_ours(found))
}

fn open_checked(
    options: &mut OpenOptions,
    path: &Path,
    good: impl Fn(&Metadata) -> bool,
) -> io::Result<File> {
    let file = options.custom_flags(OPEN_FLAGS).open(path);
    let file = file.map_err(|e| match e.raw_os_error() {
        Some(libc::ELOOP) => io::Error::other("a symbolic link, which is not followed here"),
        // A socket, or a FIFO that is to be written and that nobody reads.
        Some(libc::ENXIO) => io::Error::other("not a regular file"),
        _ => e,
    })?;
    let found = file.metadata()?;
    match good(&found) {
        true => Ok(file),
        false if found.is_file() => {
            let text = format!("a file of another user (number {})", found.uid());
            Err(io::Error::other(text))
        }
        false => Err(io::Error::other("not a regular file")),
    }
}

/// True if it belongs to this user.
pub fn is_ours(found: &Metadata) -> bool {
    found.uid() == user()
}

/// True if it is a regular file that [`open_to_read`] would give.
pub fn readable(found: &Metadata) -> bool {
    found.is_file() && (is_ours(found) || user() == 0)
}

/// The user whose rights this process has.
pub fn user() -> u32 {
    // SAFETY: cannot fail, no pointers.
    unsafe { libc::geteuid() }
}
