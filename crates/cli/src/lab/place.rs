//! Where labs are kept, and which directories there are theirs. Labs are made, run programs from
//! their directory and remove it, so nothing there is believed that another user could have put
//! there, and nothing is removed that a lab did not make.

use super::state::{check_name, Lab, STATE_DIR_VARIABLE, STATE_FILE};
use marline_engine::owned;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The file that the lab's hosts see as `/etc/hosts`.
pub const HOSTS_FILE: &str = "hosts";
/// The script that launchers call instead of `ssh`.
pub const AGENT_FILE: &str = "agent";
/// All that a lab has in its directory. The state is removed last: as long as it is there, the rest
/// is known to be ours.
const FILES: [&str; 3] = [HOSTS_FILE, AGENT_FILE, STATE_FILE];

/// The directory of all labs of this user, absolute, whether it is there or not.
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
    // One directory has one name, since processes of a lab are known by it.
    let dir = std::path::absolute(&dir).map_err(|e| bad(&e.to_string()))?;
    let name = dir.file_name().ok_or_else(|| bad("no name of a directory"));
    let name = name?.to_owned();
    let parent = dir.parent().unwrap_or(Path::new("/"));
    Ok(fs::canonicalize(parent).map_or(dir.clone(), |parent| parent.join(name)))
}

/// The directory of all labs, made if it is not there: a directory of this user in which nobody
/// else can write.
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
        // Its name may be an older one than the parent's real one.
        return base_dir();
    };
    Err(refused(why))
}

/// Names of all labs of this user; what else is in the directory is none.
pub fn names() -> Result<Vec<String>, String> {
    let entries = fs::read_dir(open_base()?).into_iter().flatten().flatten();
    let labs = entries.filter(|e| matches!(look(&e.path()), Ok(Some(_))));
    let mut names: Vec<String> = labs
        .filter_map(|e| e.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

/// The lab in `dir`; none if there is no directory, or an empty one. An error for what is no
/// lab's and must be left alone.
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

/// A lab that is up; an error that says how to make one otherwise.
pub fn running(name: &str) -> Result<Lab, String> {
    check_name(name)?;
    let base = base_dir()?;
    let lab = look(&base.join(name))?.ok_or_else(|| {
        format!(
            "no lab `{name}` in {}: `marline lab up --name {name}` makes one",
            base.display()
        )
    })?;
    match lab.is_running() {
        true => Ok(lab),
        false => Err(format!(
            "lab `{name}` is broken (interrupted `up`, or its processes were killed): \
             `marline lab down --name {name}` cleans it up"
        )),
    }
}

/// Removes the lab's files and its directory, which [`look`] found to be one's. Anything else in
/// it is not removed, and the error says so.
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

/// Holds back other `marline lab` commands on the same lab until dropped. Its file goes away with
/// the lab.
pub struct Lock {
    /// The open file is the lock.
    file: File,
    path: PathBuf,
    /// The lab's directory.
    lab: PathBuf,
}

impl Lock {
    /// Takes the lock of lab `name`, waiting for its turn.
    pub fn take(name: &str) -> Result<Lock, String> {
        Lock::take_in(&open_base()?, name)
    }

    fn take_in(base: &Path, name: &str) -> Result<Lock, String> {
        // Beside, not inside, the lab's directory: `down` removes that. No lab has a dot in its
        // name.
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

    /// False if who had the lock before removed the file, so that it holds back nobody who comes
    /// now.
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
        // Under the lock: those who wait for it look for its file again. A file that took its place
        // is another's.
        if gone && self.is_in_place().is_ok_and(|in_place| in_place) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Each that has the lock is alone, though those that leave no lab behind remove its file.
    #[test]
    fn a_lock_whose_file_goes_away_holds_back_all_the_same() {
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
