//! Starts commands inside a lab: on a host, or beside the launcher and the switches.

use super::state::{Lab, Proc, HOME_VARIABLE, STATE_DIR_VARIABLE};
use crate::outcome::Failure;
use crate::tool;
use std::fs;
use std::os::fd::{IntoRawFd, OwnedFd};
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

/// An `nsenter` command into `place`, up to its `--`, to which the caller appends a command.
///
/// The namespaces are those of a verified process of the lab, not of a name, which could refer to
/// others.
pub fn enter(lab: &Lab, place: Place) -> Result<Command, String> {
    let proc = holder(lab, place)?;
    let mut options = vec!["--target".to_owned(), proc.pid.to_string()];
    let namespaces = namespaces_of(proc);
    options.extend(namespaces.map(|(name, _)| format!("--{name}")));
    Ok(nsenter(lab, &options))
}

/// Like [`enter`], for a command that replaces this process. It gets the namespaces as descriptors,
/// opened before their process was verified: the number of a process that ended may by now belong
/// to another user's process. Returns the command, and the shell's words that close the
/// descriptors.
fn enter_for_good(lab: &Lab, place: Place) -> Result<(Command, String), String> {
    let proc = holder(lab, place)?;
    let open = |file: &str| -> std::io::Result<OwnedFd> {
        let found = OwnedFd::from(fs::File::open(format!("/proc/{}/ns/{file}", proc.pid))?);
        rustix::io::fcntl_setfd(&found, rustix::io::FdFlags::empty())?; // it outlives the `exec`
        Ok(found)
    };
    let (mut options, mut close) = (Vec::new(), String::from("exec"));
    for (name, file) in namespaces_of(proc) {
        let found = open(file).map_err(|e| format!("{}: {e}", lab.name))?;
        let fd = found.into_raw_fd();
        options.push(format!("--{name}=/proc/self/fd/{fd}"));
        // Shells read numbers of one digit.
        if fd < 10 {
            close += &format!(" {fd}>&-");
        }
    }
    match proc.is_alive() {
        true => Ok((nsenter(lab, &options), close)),
        false => Err(format!("lab `{}`: {place:?} has ended", lab.name)),
    }
}

/// The namespaces of a process to enter, by `nsenter`'s option and by file.
fn namespaces_of(proc: Proc) -> impl Iterator<Item = (&'static str, &'static str)> {
    let user = in_other_user_namespace(proc.pid).then_some(("user", "user"));
    let others = [("mount", "mnt"), ("uts", "uts"), ("net", "net")];
    user.into_iter().chain(others)
}

fn nsenter(lab: &Lab, options: &[String]) -> Command {
    let mut command = Command::new("nsenter");
    command.args(options);
    if options.iter().any(|option| option.starts_with("--user")) {
        command.arg("--preserve-credentials");
    }
    if let Ok(dir) = std::env::current_dir() {
        command.arg(format!("--wdns={}", dir.display()));
    }
    command.arg("--");
    mark(&mut command, lab);
    command
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
pub fn run_in(lab: &Lab, place: Place, words: &[&str], input: &str) -> Result<String, Failure> {
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
pub fn agent_main(args: &AgentArgs) -> crate::outcome::Uncoded {
    use std::os::unix::process::CommandExt;
    let lab = Lab::load(&args.dir)?;
    let (host, words) = split_ssh_words(&args.words)?;
    let (mut command, close) = enter_for_good(&lab, Place::Host(lab.find_host(host)?))?;
    // As in ssh, the words form one line for the remote shell.
    command.args(["sh", "-c", &format!("{close}; {}", words.join(" "))]);
    let error = command.exec();
    Err(tool::no_tool(&command, &error))
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
    use crate::lab::state::Shape;

    /// Regression: a launcher's command entered whatever process had the number of a host's.
    #[test]
    fn a_process_with_a_reused_number_is_not_entered() {
        let shape = Shape {
            hosts: 1,
            rails: 1,
            mtu: 1_500,
            ipv6: false,
            direct: false,
        };
        let mut lab = Lab::new(std::path::Path::new("/nowhere"), "one", shape);
        let own = Proc::from_pid(std::process::id()).unwrap();
        lab.hosts = vec![own];
        let (command, _) = enter_for_good(&lab, Place::Host(0)).unwrap();
        let words: Vec<_> = command.get_args().collect();
        assert!(!words.iter().any(|word| *word == "--target"), "{words:?}");
        lab.hosts[0].start_ticks += 1;
        assert!(enter_for_good(&lab, Place::Host(0)).is_err());
    }

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
