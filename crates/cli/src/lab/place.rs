//! The directories of labs and their ownership. Labs run programs from their directories, often as
//! root, and remove the directories. So files that another user could have written are not trusted,
//! and files that no lab made are not removed.

use super::state::{check_name, Lab, STATE_DIR_VARIABLE, STATE_FILE};
use crate::outcome::Failure;
use marline_codes::Code;
use marline_engine::owned;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The hosts' `/etc/hosts`.
pub const HOSTS_FILE: &str = "hosts";
/// The script that launchers call in place of `ssh`.
pub const AGENT_FILE: &str = "agent";
/// All files in a lab's directory. The state is removed last: as long as it exists, the directory
/// is known to belong to a lab.
const FILES: [&str; 3] = [HOSTS_FILE, AGENT_FILE, STATE_FILE];

/// The absolute path of this user's directory of labs, which may not exist.
pub fn base_dir() -> Result<PathBuf, String> {
    let uid = rustix::process::geteuid().as_raw();
    let given = std::env::var_os(STATE_DIR_VARIABLE).filter(|dir| !dir.is_empty());
    let dir = match given {
        Some(dir) => PathBuf::from(dir),
        None if uid == 0 => PathBuf::from("/run/marline-lab"),
        None => match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(dir) if Path::new(&dir).is_dir() => Path::new(&dir).join("marline-lab"),
            _ => PathBuf::from(format!("/tmp/marline-lab-{uid}")),
        },
    };
    let bad = |why: &str| format!("{STATE_DIR_VARIABLE}={}: {why}", dir.display());
    // A directory has one canonical name, since the environment of a lab's processes contains it.
    let dir = std::path::absolute(&dir).map_err(|e| bad(&e.to_string()))?;
    let name = dir.file_name().ok_or_else(|| bad("no name of a directory"));
    let name = name?.to_owned();
    let parent = dir.parent().unwrap_or(Path::new("/"));
    Ok(fs::canonicalize(parent).map_or(dir.clone(), |parent| parent.join(name)))
}

/// Opens or makes the directory of labs, which must belong to this user and be writable only for
/// this user.
pub fn open_base() -> Result<PathBuf, String> {
    let dir = base_dir()?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
    let refused = |why: &str| {
        format!(
            "labs cannot be kept in {}: {why}; {STATE_DIR_VARIABLE} names another place",
            dir.display()
        )
    };
    let found = fs::symlink_metadata(&dir);
    let found = found.map_err(|e| refused(&made.err().unwrap_or(e).to_string()))?;
    let why = if found.is_symlink() {
        "a symbolic link, which anybody may have made: name the directory itself"
    } else if !found.is_dir() {
        "not a directory"
    } else if !owned::is_ours(&found) {
        "a directory of another user"
    } else if found.mode() & 0o022 != 0 {
        "others can write there (chmod go-w)"
    } else {
        // The parent may have a different canonical name.
        return base_dir();
    };
    Err(refused(why))
}

/// The names of this user's labs, ignoring other entries of the directory.
pub fn names() -> Result<Vec<String>, String> {
    let entries = fs::read_dir(open_base()?).into_iter().flatten().flatten();
    let labs = entries.filter(|e| matches!(look(&e.path()), Ok(Some(_))));
    let mut names: Vec<String> = labs
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

/// The lab in `dir`; `None` if the directory is missing or empty. An error if the directory has
/// contents of unknown origin.
pub fn look(dir: &Path) -> Result<Option<Lab>, String> {
    let refused = |why: &str| {
        format!(
            "{} is not a lab's directory ({why}) and is left alone: move it away, or use another \
             --name or {STATE_DIR_VARIABLE}",
            dir.display()
        )
    };
    match fs::symlink_metadata(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("{}: {e}", dir.display())),
        Ok(found) if !found.is_dir() => return Err(refused("not a directory")),
        Ok(found) if !owned::is_ours(&found) => return Err(refused("it is another user's")),
        Ok(_) => {}
    }
    if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none()) {
        return Ok(None);
    }
    let lab = Lab::load(dir).map_err(|why| refused(&why))?;
    let named = dir
        .file_name()
        .is_some_and(|name| name == lab.name.as_str());
    match named {
        true => Ok(Some(lab)),
        false => Err(refused("its state is that of a lab of another name")),
    }
}

/// A running lab; otherwise an error that says how to make one.
pub fn running(name: &str) -> Result<Lab, Failure> {
    check_name(name)?;
    let base = base_dir()?;
    let lab = look(&base.join(name))?.ok_or_else(|| {
        let text = format!(
            "no lab `{name}` in {}: `marline lab up --name {name}` makes one",
            base.display()
        );
        Failure::with(Code::NoLab, text)
    })?;
    match lab.is_running() {
        true => Ok(lab),
        false => Err(Failure::with(
            Code::NoLab,
            format!(
                "lab `{name}` is broken (interrupted `up`, or its processes were killed): \
                 `marline lab down --name {name}` cleans it up"
            ),
        )),
    }
}

/// Removes the files and the directory of a lab found by [`look`]. Other files remain, with an
/// error.
pub fn clear(dir: &Path) -> Result<(), String> {
    let files = FILES.map(|name| dir.join(name));
    let removed = files
        .iter()
        .map(|path| (path.as_path(), fs::remove_file(path)));
    let removed = removed.chain(std::iter::once_with(|| (dir, fs::remove_dir(dir))));
    for (path, result) in removed {
        match result {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => {
                return Err(format!(
                    "{}: holds what no lab put there, which is left",
                    path.display()
                ))
            }
            Err(e) => return Err(format!("{}: {e}", path.display())),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// An exclusive lock against other `marline lab` commands on the same lab, held until dropped. The
/// lock's file is removed with the lab.
pub struct Lock {
    /// The open file holds the lock.
    file: File,
    path: PathBuf,
    /// The lab's directory.
    lab: PathBuf,
}

impl Lock {
    /// Takes the lock of lab `name`; blocks until it is free.
    pub fn take(name: &str) -> Result<Lock, String> {
        Lock::take_in(&open_base()?, name)
    }

    fn take_in(base: &Path, name: &str) -> Result<Lock, String> {
        // Beside the lab's directory, since `down` removes that. Names of labs have no dots.
        let path = base.join(format!("{name}.lock"));
        let open = || -> std::io::Result<Lock> {
            loop {
                let mut options = OpenOptions::new();
                let file = owned::open(options.read(true).write(true).create(true), &path)?;
                rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
                let (path, lab) = (path.clone(), base.join(name));
                let lock = Lock { file, path, lab };
                if lock.is_in_place()? {
                    return Ok(lock);
                }
            }
        };
        open().map_err(|e| format!("the lock {}: {e}", path.display()))
    }

    /// False if the previous owner of the lock removed the file: other commands would then lock a
    /// new file.
    fn is_in_place(&self) -> std::io::Result<bool> {
        let ours = self.file.metadata()?;
        match fs::symlink_metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let gone = fs::symlink_metadata(&self.lab).is_err_and(|e| e.kind() == ErrorKind::NotFound);
        // Checked under the lock, after which waiting commands look for a new file. A file already
        // in the place belongs to another command.
        if gone && self.is_in_place().is_ok_and(|in_place| in_place) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Mutual exclusion holds although owners without a lab remove the file.
    #[test]
    fn a_lock_excludes_although_its_file_is_removed() {
        let base = std::env::temp_dir().join(format!("marline-lock-{}", std::process::id()));
        fs::create_dir(&base).unwrap();
        let (taken, lab) = (AtomicBool::new(false), base.join("x"));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for turn in 0..300 {
                        let lock = Lock::take_in(&base, "x").unwrap();
                        assert!(!taken.swap(true, Ordering::SeqCst), "two have the lock");
                        match turn % 3 {
                            0 => drop(fs::create_dir(&lab)),
                            1 => drop(fs::remove_dir(&lab)),
                            _ => std::thread::yield_now(),
                        }
                        taken.store(false, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        drop(fs::remove_dir(&lab));
        drop(Lock::take_in(&base, "x").unwrap());
        assert_eq!(fs::read_dir(&base).unwrap().count(), 0);
        fs::remove_dir(&base).unwrap();
    }
}
