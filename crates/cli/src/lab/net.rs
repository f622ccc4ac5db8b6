//! Builds and removes a lab: namespaces, switches, cables, addresses.

use super::enter::{self, Place};
use super::names::{control_address, port_name, rail_address};
use super::place;
use super::state::{Lab, Proc, HOME_VARIABLE};
use crate::outcome::Failure;
use crate::tool;
use marline_codes::Code;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The control network's interface on every host and at the launcher.
pub const CONTROL: &str = "ctl";
/// The launcher's address on the control network.
const LAUNCHER_ADDRESS: &str = "10.99.255.254";

/// Timeout for a rail's carrier, and interval of checks.
const CARRIER_MAX: Duration = Duration::from_secs(10);
const CARRIER_LOOK: Duration = Duration::from_millis(5);

/// Builds the lab; after an error, removes all parts of it.
pub fn build(lab: &mut Lab, offload: bool) -> Result<(), Failure> {
    let made = build_all(lab, offload);
    if made.is_err() {
        // Errors of the cleanup are less informative than the first error.
        let _ = end_all(&lab.dir).and_then(|_| Ok(place::clear(&lab.dir)?));
    }
    made
}

fn build_all(lab: &mut Lab, offload: bool) -> Result<(), Failure> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&lab.dir);
    made.map_err(|e| format!("{}: {e}", lab.dir.display()))?;
    // Save the state first, so that an interrupted `up` can be cleaned up.
    lab.save()?;
    write_hosts_file(lab)?;
    enter::write_agent(lab)?;
    lab.switch = Some(start_switch(lab)?);
    lab.save()?;
    for host in 0..lab.shape.hosts {
        lab.hosts.push(start_host(lab, host)?);
    }
    enter::run_in(
        lab,
        Place::Switch,
        &["ip", "-batch", "-"],
        &switch_script(lab),
    )?;
    for host in 0..lab.shape.hosts {
        enter::run_in(
            lab,
            Place::Host(host),
            &["ip", "-batch", "-"],
            &host_script(lab, host),
        )?;
    }
    for host in 0..lab.shape.hosts {
        await_carrier(lab, host)?;
    }
    if !offload {
        lab.no_offload = (0..lab.shape.rails).collect();
        for rail in 0..lab.shape.rails {
            super::apply::set_offload(lab, rail, false)?;
        }
    }
    lab.complete = true;
    Ok(lab.save()?)
}

/// Waits until the kernel reports all rails of a host as running. A kernel worker sets that state
/// some time after both ends of a cable are up. On a busy machine a lab's first job would otherwise
/// find its rails down.
fn await_carrier(lab: &Lab, host: usize) -> Result<(), Failure> {
    let until = Instant::now() + CARRIER_MAX;
    let show = &["ip", "-o", "link", "show"];
    while !all_run(
        &enter::run_in(lab, Place::Host(host), show, "")?,
        &lab.rail_names(),
    ) {
        if Instant::now() > until {
            return Err(format!("the rails of host {host} have no carrier").into());
        }
        std::thread::sleep(CARRIER_LOOK);
    }
    Ok(())
}

/// Returns whether `ip -o link show` reports all these interfaces as running.
fn all_run(shown: &str, rails: &[String]) -> bool {
    let runs = |rail: &String| {
        let mut lines = shown.lines().filter_map(|line| {
            let name = line.split_whitespace().nth(1)?;
            let name = name.trim_end_matches(':').split('@').next()?;
            (name == rail.as_str()).then_some(line)
        });
        lines.any(|line| line.contains(" state UP "))
    };
    rails.iter().all(runs)
}

/// Host names resolve to the control network; rails are selected by interface, not by host name.
fn write_hosts_file(lab: &Lab) -> Result<(), String> {
    let mut text = format!(
        "127.0.0.1 localhost\n{LAUNCHER_ADDRESS} {}-{CONTROL}\n",
        lab.name
    );
    for host in 0..lab.shape.hosts {
        let _ = writeln!(
            text,
            "{} {} h{host}",
            control_address(host),
            lab.host_name(host)
        );
    }
    let path = lab.dir.join(place::HOSTS_FILE);
    fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn holder_command(mut command: Command, lab: &Lab, hostname: &str) -> Result<Command, String> {
    command
        .arg(tool::own_path()?)
        .args(["lab-holder", "--hostname", hostname]);
    enter::mark(&mut command, lab);
    Ok(command)
}

/// Starts the switches' holder: directly as root, or in a new user namespace for other users and if
/// root lacks the right.
fn start_switch(lab: &Lab) -> Result<Proc, Failure> {
    let attempt = |user: bool| {
        let mut command = Command::new("unshare");
        if user {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "--uts", "--net", "--"]);
        let mut command = holder_command(command, lab, &format!("{}-{CONTROL}", lab.name))?;
        command
            .arg("--hosts-file")
            .arg(lab.dir.join(place::HOSTS_FILE));
        start_holder(command)
    };
    let direct = match rustix::process::geteuid().is_root() {
        true => attempt(false),
        false => Err(Failure::from("not root")),
    };
    direct.or_else(|why| {
        attempt(true).map_err(|error| match error.code() {
            Some(_) => error,
            None => no_namespaces(why.text(), error.text()),
        })
    })
}

/// The error where neither root's namespaces nor those of a user can be made.
fn no_namespaces(of_root: &str, of_user: &str) -> Failure {
    let text = format!(
        "cannot make namespaces ({of_root}; in a user namespace: {of_user}). Run as root, or allow \
         user namespaces: sysctl kernel.unprivileged_userns_clone=1 (Ubuntu: \
         kernel.apparmor_restrict_unprivileged_userns=0)"
    );
    Failure::with(Code::Namespaces, text)
}

fn start_host(lab: &Lab, host: usize) -> Result<Proc, Failure> {
    let mut command = enter::enter(lab, Place::Switch)?;
    command.args(["unshare", "--mount", "--uts", "--net", "--"]);
    let mut command = holder_command(command, lab, &lab.host_name(host))?;
    if lab.shape.ipv6 {
        command.arg("--ipv6");
    }
    start_holder(command)
}

/// Starts a holder and waits for its `ready`.
fn start_holder(mut command: Command) -> Result<Proc, Failure> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| tool::no_tool(&command, &e))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    if line.trim() == "ready" {
        // nsenter and unshare were replaced by the holder, so this process number is the holder's.
        return Proc::from_pid(child.id()).ok_or_else(|| "the holder vanished".into());
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    Err(String::from_utf8_lossy(&output.stderr).trim().into())
}

/// Commands for `ip -batch` beside the switches.
fn switch_script(lab: &Lab) -> String {
    let mut script = String::from("link set dev lo up\n");
    let switched = if lab.shape.direct { 0 } else { lab.shape.rails };
    let bridges =
        std::iter::once(CONTROL.to_owned()).chain((0..switched).map(|r| format!("br{r}")));
    for bridge in bridges {
        // No multicast snooping: its queries would disturb the packet counters.
        let _ = writeln!(
            script,
            "link add name {bridge} type bridge mcast_snooping 0"
        );
        let _ = writeln!(script, "link set dev {bridge} up");
    }
    let _ = writeln!(script, "addr add {LAUNCHER_ADDRESS}/16 dev {CONTROL}");
    for (host, proc) in lab.hosts.iter().enumerate() {
        let pid = proc.pid;
        let mut cable = |port: &str, inner: &str, bridge: &str, mtu: u32| {
            let _ = writeln!(
                script,
                "link add name {port} mtu {mtu} type veth peer name {inner} mtu {mtu} netns {pid}\n\
                 link set dev {port} master {bridge}\n\
                 link set dev {port} up"
            );
        };
        const CONTROL_MTU: u32 = 1500;
        cable(&format!("h{host}c"), CONTROL, CONTROL, CONTROL_MTU);
        for rail in 0..switched {
            let inner = super::state::rail_name(rail);
            cable(
                &port_name(host, rail),
                &inner,
                &format!("br{rail}"),
                lab.shape.mtu,
            );
        }
    }
    if let (true, [one, other]) = (lab.shape.direct, &lab.hosts[..]) {
        let (one, other, mtu) = (one.pid, other.pid, lab.shape.mtu);
        for name in lab.rail_names() {
            let _ = writeln!(
                script,
                "link add name {name} mtu {mtu} netns {one} type veth \
                 peer name {name} mtu {mtu} netns {other}"
            );
        }
    }
    script
}

/// Commands for `ip -batch` on a host.
fn host_script(lab: &Lab, host: usize) -> String {
    let mut script = format!(
        "link set dev lo up\naddr add {}/16 dev {CONTROL}\nlink set dev {CONTROL} up\n",
        control_address(host)
    );
    for (rail, name) in lab.rail_names().iter().enumerate() {
        let _ = writeln!(
            script,
            "addr add {} dev {name}",
            rail_address(lab, host, rail)
        );
        let _ = writeln!(script, "link set dev {name} up");
    }
    script
}

/// Kills every process of the lab in `dir`, which ends its namespaces. Returns the number of
/// processes.
pub fn end_all(dir: &Path) -> Result<usize, Failure> {
    let mut ended = 0;
    // Repeat until no process is found, since processes may start others meanwhile.
    loop {
        let found = processes_of(dir);
        if found.is_empty() {
            return Ok(ended);
        }
        ended += found.len();
        for proc in found {
            end(proc)?;
        }
    }
}

/// Kills the processes of a lab, except those that hold its namespaces.
pub fn end_programs(lab: &Lab) -> Result<(), Failure> {
    let is_holder = |proc: &Proc| lab.switch.iter().chain(&lab.hosts).any(|p| p == proc);
    let programs = processes_of(&lab.dir).into_iter();
    let ended = programs.filter(|proc| !is_holder(proc)).try_for_each(end);
    Ok(ended?)
}

/// Timeout for a killed process: a wait for a disk or a network file system cannot be interrupted.
const END_S: i64 = 30;

/// Kills a process and waits until it is gone.
fn end(proc: Proc) -> Result<(), String> {
    use rustix::event::{poll, PollFd, PollFlags, Timespec};
    use rustix::io::Errno;
    use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};
    let Some(pid) = i32::try_from(proc.pid).ok().and_then(Pid::from_raw) else {
        return Ok(());
    };
    let cannot = |why: &str| Err(format!("cannot end process {}: {why}", proc.pid));
    let fd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => fd,
        // Some kernels report EINVAL for an exiting process.
        Err(_) if !proc.is_alive() => return Ok(()),
        Err(e) => return cannot(&e.to_string()),
    };
    if !proc.is_alive() {
        return Ok(());
    }
    match pidfd_send_signal(&fd, Signal::KILL) {
        Ok(()) => {}
        Err(Errno::SRCH) => return Ok(()),
        Err(e) => return cannot(&e.to_string()),
    }
    let limit = Timespec {
        tv_sec: END_S,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    loop {
        match poll(&mut fds, Some(&limit)) {
            Err(Errno::INTR) => {}
            Ok(0) => return cannot(&format!("killed, and still there after {END_S} s")),
            Ok(_) => return Ok(()),
            Err(e) => return cannot(&e.to_string()),
        }
    }
}

/// Every process with the lab's mark, except this one.
fn processes_of(dir: &Path) -> Vec<Proc> {
    let mark = format!("{HOME_VARIABLE}={}", dir.display());
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|&pid| pid != own && has_mark(pid, mark.as_bytes()))
        .filter_map(Proc::from_pid)
        .collect()
}

fn has_mark(pid: u32, mark: &[u8]) -> bool {
    // Processes of other users are unreadable, and not part of the lab; a zombie's environment is
    // empty.
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environ.split(|&byte| byte == 0).any(|entry| entry == mark)
}

#[cfg(test)]
mod tests {
    use super::all_run;

    #[test]
    fn rails_run_when_the_kernel_says_so() {
        let shown = "\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT\n\
3: rail0@if5: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP mode DEFAULT\n\
4: rail1@if7: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc noqueue state DOWN mode\n";
        let names = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        assert!(all_run(shown, &names(&["rail0"])));
        assert!(!all_run(shown, &names(&["rail0", "rail1"])));
        assert!(!all_run(shown, &names(&["rail2"])), "it is not there yet");
    }
}
