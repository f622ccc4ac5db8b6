//! Access to files in directories that other users may write, such as /dev/shm and /tmp. A file
//! with our name may belong to another user: a link may lead anywhere, a FIFO blocks its opener,
//! and contents may be forged. So files are opened without following links or blocking, and the
//! type and owner of the open file are checked.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Flags for opening such files; the standard library adds `O_CLOEXEC`.
const OPEN_FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// Opens a file of this user for reading. Root may read those of all users.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    open_checked(OpenOptions::new().read(true), path, readable)
}

/// Opens a file of this user with `options`.
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
        // The file is a socket, or a FIFO opened for writing that has no reader.
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

/// True if the file belongs to this user.
pub fn is_ours(found: &Metadata) -> bool {
    found.uid() == user()
}

/// True if [`open_to_read`] would open the file: a regular file of this user.
pub fn readable(found: &Metadata) -> bool {
    found.is_file() && (is_ours(found) || user() == 0)
}

/// The effective user of this process.
pub fn user() -> u32 {
    // SAFETY: cannot fail, no pointers.
    unsafe { libc::geteuid() }
}
