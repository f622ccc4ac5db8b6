//! Files with a job's key: only the user can read them.

use crate::job::JobKey;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use zeroize::Zeroizing;

/// Longest content of a key file in bytes: 64 digits and blanks.
const CONTENT_MAX: u64 = 256;
/// Permissions of others that a key file must not have.
const OTHERS: u32 = 0o077;

/// The user of this process.
#[allow(unsafe_code)]
fn user() -> u32 {
    // SAFETY: the call has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// Reads the key in a file. The error is a text for the user.
pub fn read(path: &Path) -> Result<JobKey, String> {
    let said = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    // A link could be another user's; a pipe would block.
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(|why| said(&why))?;
    let metadata = file.metadata().map_err(|why| said(&why))?;
    check(&metadata).map_err(|why| said(&why))?;
    let mut text = Zeroizing::new(String::new());
    file.take(CONTENT_MAX)
        .read_to_string(&mut text)
        .map_err(|why| said(&why))?;
    JobKey::from_hex(&text).ok_or_else(|| said(&"a key has 64 hexadecimal digits"))
}

/// Refuses a file that another user could have written or read.
fn check(metadata: &Metadata) -> Result<(), String> {
    if !metadata.is_file() {
        return Err("is no regular file".to_owned());
    }
    if metadata.uid() != user() {
        return Err(format!(
            "belongs to user {}, not to user {} of this process",
            metadata.uid(),
            user()
        ));
    }
    let mode = metadata.permissions().mode() & 0o777;
    match mode & OTHERS {
        0 => Ok(()),
        _ => Err(format!(
            "has permissions {mode:04o}, so that other users can read the key: chmod 600"
        )),
    }
}

/// Writes the key into a new file that only the user can read.
pub fn write(path: &Path, key: &JobKey) -> std::io::Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)?;
    file.write_all(key.to_hex().as_bytes())?;
    file.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_a_private_regular_file_gives_a_key() {
        let dir = std::env::temp_dir().join(format!("marline-key-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("key");
        let key = JobKey::new([0xa5; 32]);
        write(&path, &key).unwrap();
        assert!(write(&path, &key).is_err(), "files are never overwritten");
        assert_eq!(*read(&path).unwrap().to_hex(), *key.to_hex());

        let said = |path: &Path| read(path).unwrap_err();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(said(&path).contains("permissions 0640"), "{}", said(&path));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = dir.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read(&link).is_err(), "links are not followed");
        assert!(said(&dir).contains("regular file"), "{}", said(&dir));
        fs::write(&path, "abc").unwrap();
        assert!(said(&path).contains("64 hexadecimal"), "{}", said(&path));
        fs::remove_dir_all(&dir).unwrap();
    }
}
