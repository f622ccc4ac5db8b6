//! Runs the user's command transparently: returns its exit status and forwards signals to it.

use crate::tool;
use rustix::process::{kill_process, Pid, Signal};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;

/// Forwarded signals.
const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Makes children's exit statuses available. The parent process may have ignored SIGCHLD, which is
/// inherited and makes the kernel discard the statuses. A handler prevents that, and programs that
/// we start get the default again.
pub fn keep_statuses() {
    // Without the handler, waiting for the child reports the error.
    let _ = signal_hook::flag::register(SIGCHLD, Arc::default());
}

/// Ignored signals (bit n - 1: signal n), as under `nohup` or in a script's background job.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Runs `command` to its end; returns the exit status as a shell does.
pub fn run(command: &mut Command) -> Result<u8, String> {
    // Ignored signals stay ignored, also for the child: a handler would reset them to the default.
    let ignored = ignored();
    let heard = FORWARDED.iter().filter(|&n| ignored >> (n - 1) & 1 == 0);
    // Installed before the child exists, so that no signal is missed.
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
    // Stop forwarding: the process number may be reused.
    handle.close();
    let _ = forwarder.join();
    status.map(code_of).map_err(|e| e.to_string())
}

fn forward(pid: Option<Pid>, signal: i32) {
    // The terminal sends Ctrl-C and Ctrl-\ to the whole foreground group, including the child.
    // Forwarding a second one would make mpiexec skip its orderly end.
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
    /// Shells report death by signal N as 128 + N.
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
