//! The files of `marline lab`: only files made by a lab are removed, and files that another user
//! could have written are refused.

use crate::support;

use std::process::Command;
use support::{fail, marline, outcome, processes_of, succeed, Dir};

#[test]
fn foreign_directories_are_left_alone() {
    let dir = Dir::new("foreign");
    let labs = dir.0.join("labs");
    // Directories with other contents, one with a file of a lab's name, and a link to one.
    for name in ["work", "thesis"] {
        std::fs::create_dir_all(labs.join(name).join("deep")).unwrap();
        std::fs::write(labs.join(name).join("deep/notes"), "years").unwrap();
    }
    std::fs::write(labs.join("thesis/state"), "Vermont\n").unwrap();
    std::os::unix::fs::symlink(labs.join("work"), labs.join("link")).unwrap();
    std::fs::write(labs.join("file"), "a file").unwrap();
    for name in ["work", "thesis", "link", "file"] {
        for words in [&["up", "--hosts", "1", "--rails", "1"][..], &["down"]] {
            let mut command = marline(&dir.0);
            let said = fail(command.arg("lab").args(words).args(["--name", name]));
            let refused = said.contains("is not a lab's directory") && said.contains("left alone");
            assert!(refused, "{name}: {said}");
        }
    }
    succeed(marline(&dir.0).args(["lab", "down", "--all"]));
    for kept in ["work/deep/notes", "thesis/deep/notes", "link/deep/notes"] {
        assert_eq!(std::fs::read_to_string(labs.join(kept)).unwrap(), "years");
    }
    assert_eq!(
        std::fs::read_to_string(labs.join("file")).unwrap(),
        "a file"
    );
}

#[test]
fn down_all_ends_labs_and_keeps_foreign_files() {
    let dir = Dir::new("all");
    let base = &dir.0;
    for name in ["all-one", "all-two"] {
        let up = ["lab", "up", "--hosts", "1", "--rails", "1", "--name"];
        succeed(marline(base).args(up).arg(name));
    }
    std::fs::write(base.join("labs/all-two/result"), "42").unwrap();
    let said = fail(marline(base).args(["lab", "down", "--all"]));
    assert!(said.contains("no lab put there"), "{said}");
    assert!(!base.join("labs/all-one").exists());
    for name in ["all-one", "all-two"] {
        assert_eq!(processes_of(&base.join("labs").join(name)), [0; 0]);
    }
    let kept = std::fs::read_to_string(base.join("labs/all-two/result"));
    assert_eq!(kept.unwrap(), "42");
}

/// The same relative directory below another directory is another lab.
#[test]
fn a_relative_directory_means_one_below_here() {
    let (here, there) = (Dir::new("here"), Dir::new("there"));
    let lab = |at: &Dir, words: &[&str]| {
        let mut command = marline(&at.0);
        command.env("MARLINE_LAB_DIR", "labs").current_dir(&at.0);
        outcome(command.arg("lab").args(words).args(["--name", "same"]))
    };
    let up = ["up", "--hosts", "1", "--rails", "1"];
    for dir in [&here, &there] {
        let (status, said) = lab(dir, &up);
        assert_eq!(status, Some(0), "{said}");
    }
    assert_eq!(lab(&there, &["down"]).0, Some(0));
    let (status, said) = lab(&here, &["status"]);
    let (down, _) = lab(&here, &["down"]);
    assert_eq!((status, down), (Some(0), Some(0)), "{said}");
}

/// As in /tmp, where any user may create files first.
#[test]
fn files_that_others_could_have_written_are_refused() {
    use std::os::unix::fs::{symlink, PermissionsExt};
    let dir = Dir::new("planted");
    let (labs, victim) = (dir.0.join("labs"), dir.0.join("victim"));
    std::fs::write(&victim, "precious").unwrap();
    let refused = |why: &str| {
        for words in [&["up", "--hosts", "1", "--rails", "1"][..], &["down"]] {
            let said = fail(marline(&dir.0).arg("lab").args(words).args(["--name", "x"]));
            assert!(said.contains(why), "{why}: {said}");
        }
    };
    // The directory of labs.
    std::fs::create_dir(dir.0.join("elsewhere")).unwrap();
    symlink(dir.0.join("elsewhere"), &labs).unwrap();
    refused("a symbolic link");
    std::fs::remove_file(&labs).unwrap();
    std::fs::create_dir(&labs).unwrap();
    std::fs::set_permissions(&labs, PermissionsExt::from_mode(0o777)).unwrap();
    refused("others can write there");
    std::fs::set_permissions(&labs, PermissionsExt::from_mode(0o700)).unwrap();
    if is_root() {
        std::os::unix::fs::chown(&labs, Some(65_534), None).unwrap();
        refused("another user");
        std::os::unix::fs::chown(&labs, Some(0), None).unwrap();
    }
    // The lock.
    let lock = labs.join("x.lock");
    symlink(&victim, &lock).unwrap();
    refused("a symbolic link");
    std::fs::remove_file(&lock).unwrap();
    succeed(Command::new("mkfifo").arg(&lock));
    refused("not a regular file");
    std::fs::remove_file(&lock).unwrap();
    std::fs::hard_link(&victim, &lock).unwrap();
    succeed(marline(&dir.0).args(["lab", "down", "--name", "x"]));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    // A state file decides which processes are entered and which directory is removed.
    std::fs::create_dir(labs.join("x")).unwrap();
    symlink(&victim, labs.join("x/state")).unwrap();
    refused("a symbolic link");
    std::fs::remove_file(labs.join("x/state")).unwrap();
    succeed(Command::new("mkfifo").arg(labs.join("x/state")));
    refused("not a regular file");
}

fn is_root() -> bool {
    succeed(Command::new("id").arg("-u")).trim() == "0"
}
