//! Running the user's command as if we were not there: its exit status is ours, and signals sent
//! to us reach it.

use crate::tool;
use rustix::process::{kill_process, Pid, Signal};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;

/// Signals passed on.
const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Makes sure that children can be waited for: our parent may have ignored SIGCHLD, which a
/// process hands down, and the kernel then forgets the status of children. With a handler it keeps
/// them, and what we start has the default again.
pub fn keep_statuses() {
    // On failure all is as before, and waiting says so.
    let _ = signal_hook::flag::register(SIGCHLD, Arc::default());
}

/// Signals that are ignored (bit n - 1: signal n), as under `nohup`, or in the background of a
/// script.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Runs `command` to its end; the exit status as a shell would report it.
pub fn run(command: &mut Command) -> Result<u8, String> {
    // What is ignored stays so, for the child, too: a handler would give it the default.
    let ignored = ignored();
    let heard = FORWARDED.iter().filter(|&n| ignored >> (n - 1) & 1 == 0);
    // Before the child exists, so that no signal falls between.
    let mut signals = Signals::new(heard).map_err(|e| format!("signal handlers: {e}"))?;
    let mut child = command
        .spawn()
        .map_err(|e| tool::spawn_error(command, &e))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let handle = signals.handle();
    let forwarder = std::thread::spawn(move || {
        for signal in signals.forever() {
            forward(pid, signal);
        }
    });
    let status = child.wait();
    // No more forwarding: the number may soon belong to somebody else.
    handle.close();
    let _ = forwarder.join();
    status.map(code_of).map_err(|e| e.to_string())
}

fn forward(pid: Option<Pid>, signal: i32) {
    // The terminal sends Ctrl-C and Ctrl-\ to the whole foreground group, the child included; a
    // second one would make mpiexec skip its orderly end.
    if [SIGINT, SIGQUIT].contains(&signal) && in_foreground() {
        return;
    }
    if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(signal)) {
        let _ = kill_process(pid, signal);
    }
}

fn in_foreground() -> bool {
    let Ok(terminal) = std::fs::File::open("/dev/tty") else {
        return false;
    };
    rustix::termios::tcgetpgrp(&terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}

fn code_of(status: ExitStatus) -> u8 {
    /// A shell reports death by signal N as 128 + N.
    const SIGNAL_BASE: i32 = 128;
    let code = status
        .code()
        .or_else(|| status.signal().map(|s| SIGNAL_BASE + s));
    code.and_then(|c| u8::try_from(c).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_is_that_of_the_command() {
        let status = |script: &str| run(Command::new("sh").args(["-c", script]));
        assert_eq!(status("exit 0"), Ok(0));
        assert_eq!(status("exit 7"), Ok(7));
        assert_eq!(status("kill -KILL $$"), Ok(137));
        assert!(run(&mut Command::new("/no/such/program")).is_err());
    }
}
