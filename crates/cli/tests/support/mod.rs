//! A lab for a test, removed when the test ends, and helpers of tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A temporary directory of a test, removed on drop.
pub struct Dir(pub PathBuf);

impl Dir {
    /// Makes the directory; `tag` is part of its name.
    pub fn new(tag: &str) -> Dir {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(format!("marline-test-{process}-{count}-{tag}"));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Dir(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `marline` with labs' state in `dir`.
pub fn marline(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_marline"));
    command.env("MARLINE_LAB_DIR", dir.join("labs"));
    command
}

/// Runs a command and returns its output; panics with the output if it fails.
pub fn succeed(command: &mut Command) -> String {
    let (status, said) = outcome(command);
    assert_eq!(status, Some(0), "{command:?}: {said}");
    said
}

/// Runs a command that must fail and returns its output; panics if it succeeds.
#[allow(dead_code)]
pub fn fail(command: &mut Command) -> String {
    let (status, said) = outcome(command);
    assert_ne!(status, Some(0), "{command:?} should fail: {said}");
    said
}

/// Exit status, and combined standard output and error.
pub fn outcome(command: &mut Command) -> (Option<i32>, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the command starts");
    let said = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    (status.code(), said)
}

/// Runs a program as another user if the test runs as root. (Unused in some tests.)
#[allow(dead_code)]
pub fn as_a_user(exe: &Path) -> Command {
    match succeed(Command::new("id").arg("-u")).trim() {
        "0" => {
            let mut setpriv = Command::new("setpriv");
            setpriv
                .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
                .arg(exe);
            setpriv
        }
        _ => Command::new(exe),
    }
}

/// Puts a file into `dir` that passes for the provider's library.
#[allow(dead_code)]
pub fn put_provider(dir: &Path) {
    let program = std::env::current_exe().expect("the test's own path");
    std::os::unix::fs::symlink(program, dir.join("libmarline-fi.so")).expect("a link");
}

/// Process numbers with the mark of the lab in `state_dir`.
#[allow(dead_code)]
pub fn processes_of(state_dir: &Path) -> Vec<u32> {
    let mark = format!("MARLINE_LAB_HOME={}", state_dir.display());
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ
            .split(|&b| b == 0)
            .any(|entry| entry == mark.as_bytes())
    })
    .collect()
}

/// Writes a shell script. (Unused in some tests.)
#[allow(dead_code)]
pub fn write_script(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    succeed(Command::new("chmod").arg("755").arg(path));
}
