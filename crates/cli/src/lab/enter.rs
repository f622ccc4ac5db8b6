//! Starts commands inside a lab: on a host, or beside the launcher and the switches.

use super::state::{Lab, Proc, HOME_VARIABLE, STATE_DIR_VARIABLE};
use crate::tool;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A place in a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The namespace of the switches, where mpiexec runs.
    Switch,
    /// A host.
    Host(usize),
}

fn holder(lab: &Lab, place: Place) -> Result<Proc, String> {
    let proc = match place {
        Place::Switch => lab.switch,
        Place::Host(host) => lab.hosts.get(host).copied(),
    };
    proc.ok_or_else(|| format!("lab `{}` has no {place:?}", lab.name))
}

/// An `nsenter` command into `place`, up to its `--`, for the caller to append a command.
///
/// The namespaces are those of a verified process of the lab, not of a name, which could refer to
/// others.
pub fn enter(lab: &Lab, place: Place) -> Result<Command, String> {
    let proc = holder(lab, place)?;
    let mut command = Command::new("nsenter");
    command.args(["--target", &proc.pid.to_string()]);
    if in_other_user_namespace(proc.pid) {
        command.args(["--user", "--preserve-credentials"]);
    }
    command.args(["--mount", "--uts", "--net"]);
    if let Ok(dir) = std::env::current_dir() {
        command.arg(format!("--wdns={}", dir.display()));
    }
    command.arg("--");
    mark(&mut command, lab);
    Ok(command)
}

/// Marks a command's process as part of the lab.
pub fn mark(command: &mut Command, lab: &Lab) {
    command.env(HOME_VARIABLE, &lab.dir);
    if let Some(base) = lab.dir.parent() {
        command.env(STATE_DIR_VARIABLE, base);
    }
}

/// The kernel refuses to enter the current user namespace.
fn in_other_user_namespace(pid: u32) -> bool {
    let theirs = fs::read_link(format!("/proc/{pid}/ns/user"));
    let ours = fs::read_link("/proc/self/ns/user");
    match (theirs, ours) {
        (Ok(theirs), Ok(ours)) => theirs != ours,
        _ => false,
    }
}

/// Runs a system tool in `place`.
pub fn run_in(lab: &Lab, place: Place, words: &[&str], input: &str) -> Result<String, String> {
    tool::run_through(enter(lab, place)?, words, input)
}

/// Writes the script that launchers call in place of `ssh`.
pub fn write_agent(lab: &Lab) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let path = agent_path(lab);
    let exe = tool::own_path()?;
    let text = format!(
        "#!/bin/sh\nexec {} lab-agent {} \"$@\"\n",
        tool::quote(&exe.to_string_lossy()),
        tool::quote(&lab.dir.to_string_lossy()),
    );
    let write = || -> std::io::Result<()> {
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
    };
    write().map_err(|e| format!("{}: {e}", path.display()))
}

/// The script's path.
pub fn agent_path(lab: &Lab) -> PathBuf {
    lab.dir.join(super::place::AGENT_FILE)
}

/// Arguments of the hidden `lab-agent`: those of `ssh`, after the lab's directory.
#[derive(clap::Args)]
pub struct AgentArgs {
    /// The lab's directory.
    dir: PathBuf,
    /// `[ssh options] HOST COMMAND…`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Replaces this process by the launcher's command on a host.
pub fn agent_main(args: &AgentArgs) -> crate::outcome::Outcome {
    use std::os::unix::process::CommandExt;
    let lab = Lab::load(&args.dir)?;
    let (host, words) = split_ssh_words(&args.words)?;
    let mut command = enter(&lab, Place::Host(lab.find_host(host)?))?;
    // As in ssh, the words form one line for the remote shell.
    command.args(["sh", "-c", &words.join(" ")]);
    let error = command.exec();
    Err(tool::spawn_error(&command, &error))
}

/// Skips ssh's options; returns the host and the words of the command.
fn split_ssh_words(words: &[String]) -> Result<(&str, &[String]), String> {
    // Options of ssh with a value in the next word.
    const WITH_VALUE: &str = "BbcDEeFIiJLlmOopQRSWw";
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|w| w.starts_with('-')) {
        let bare = word.len() == 2 && WITH_VALUE.contains(&word[1..]);
        at += if bare { 2 } else { 1 };
    }
    match words.get(at..) {
        Some([host, command @ ..]) if !command.is_empty() => {
            let host = host.rsplit('@').next().unwrap_or(host);
            Ok((host, command))
        }
        _ => Err("lab-agent: expected [options] HOST COMMAND".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_words() {
        let split = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (host, rest) = split_ssh_words(&words)?;
            Ok::<_, String>((host.to_owned(), rest.join(" ")))
        };
        let good = Ok(("h1".to_owned(), "a -b".to_owned()));
        assert_eq!(split("h1 a -b"), good);
        assert_eq!(split("-x h1 a -b"), good);
        assert_eq!(split("-x -o Foo=1 -p 22 root@h1 a -b"), good);
        assert!(split("-x h1").is_err());
    }
}
