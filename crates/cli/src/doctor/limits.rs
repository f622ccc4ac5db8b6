//! Findings on the limits that the kernel sets: buffers, locked memory, descriptors, queues.

use super::finding::{Finding, Severity};
use marline_codes::Code;
use std::path::Path;

/// The receive buffer that a UDP rail requests, in bytes.
pub const BUFFER: usize = 8 << 20;
/// A smaller receive buffer limits broadcast roots to less than 512 KiB in flight, a quarter of the
/// kernel's actual buffer.
const BUFFER_OF_GROUPS: usize = 1 << 20;
/// The least send buffer: two super-packets of 64 KB, one in the queue and one being made.
const SEND_BUFFER: usize = 128 << 10;
/// Least locked memory in bytes with which an InfiniBand rail can start
/// (docs/design/verbs-memory.md).
const LOCKED: u64 = 11_000_000;
/// Connections that ranks of many hosts open at one time.
const SOMAXCONN: usize = 1_024;
/// Descriptors of a process: sockets of some rails, and connections.
const DESCRIPTORS: u64 = 1_024;

/// Rows of the kernel's table of process limits.
pub const LOCKED_ROW: &str = "Max locked memory";
const FILES_ROW: &str = "Max open files";

/// The limits of a host.
pub struct Limits {
    /// `net.core.rmem_max` in bytes, or the receive buffer that a socket gets.
    pub receive: Option<usize>,
    /// `net.core.wmem_max` in bytes.
    pub send: Option<usize>,
    /// `net.core.somaxconn`.
    pub somaxconn: Option<usize>,
    /// The table of process limits.
    pub process: String,
    /// The host has verbs devices.
    pub verbs: bool,
}

impl Limits {
    /// The limits of this host. In a network namespace of its own a process may not see the
    /// buffers' limits.
    pub fn read() -> Limits {
        let number = |name: &str| {
            let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?;
            text.trim().parse::<usize>().ok()
        };
        let granted = || Some(marline_rails::receive_buffer(BUFFER)? / 2);
        let devices = std::fs::read_dir(Path::new("/sys/class/infiniband"));
        Limits {
            receive: number("rmem_max").or_else(granted),
            send: number("wmem_max"),
            somaxconn: number("somaxconn"),
            process: std::fs::read_to_string("/proc/self/limits").unwrap_or_default(),
            verbs: devices.is_ok_and(|mut devices| devices.next().is_some()),
        }
    }

    /// Findings.
    pub fn findings(&self) -> Vec<Finding> {
        let receive = self.receive.and_then(receive_buffer);
        let send = self.send.filter(|&bytes| bytes < SEND_BUFFER).map(|bytes| {
            Finding::warning(Code::KernelLimit, format!("net.core.wmem_max is {bytes}"))
                .because("a rail's send buffer holds no two super-packets")
                .mend("sysctl -w net.core.wmem_max=4194304")
        });
        let queue = self.somaxconn.filter(|&length| length < SOMAXCONN);
        let queue = queue.map(|length| {
            Finding::warning(Code::KernelLimit, format!("net.core.somaxconn is {length}"))
                .because("TCP rails of many ranks that connect at one time wait for seconds")
                .mend("sysctl -w net.core.somaxconn=4096")
        });
        let locked = self.verbs.then(|| self.locked()).flatten();
        let all = [receive, send, queue, locked, self.files()];
        all.into_iter().flatten().collect()
    }

    fn locked(&self) -> Option<Finding> {
        let bytes = soft(&self.process, LOCKED_ROW)?.ok()?;
        let reason = match bytes < LOCKED {
            true => "an InfiniBand or RoCE rail does not start",
            false => "long messages beyond that are copied",
        };
        let what = format!("locked memory is limited to {} KiB", bytes >> 10);
        let finding = Finding::warning(Code::LockedMemory, what).because(reason);
        Some(finding.mend("ulimit -l unlimited"))
    }

    fn files(&self) -> Option<Finding> {
        let count = soft(&self.process, FILES_ROW)?.ok()?;
        let finding = Finding::warning(
            Code::KernelLimit,
            format!("a process may open {count} files"),
        )
        .because("TCP rails close connections to open others")
        .mend("ulimit -n 65536");
        (count < DESCRIPTORS).then_some(finding)
    }
}

fn receive_buffer(bytes: usize) -> Option<Finding> {
    let (severity, slow) = match bytes {
        BUFFER.. => return None,
        BUFFER_OF_GROUPS.. => (Severity::Good, ""),
        _ => (
            Severity::Warning,
            ", and long broadcasts by multicast are slow",
        ),
    };
    let what = format!("receive buffers end at {} KiB of 8192", bytes >> 10);
    let finding = Finding::new(severity, Some(Code::KernelLimit), what)
        .because(format!("packets are lost where a process reads late{slow}"));
    Some(finding.mend(format!("sysctl -w net.core.rmem_max={BUFFER}")))
}

/// The soft limit in a row of the kernel's table of process limits: a number, or the word that
/// stands for none.
pub fn soft<'a>(limits: &'a str, row: &str) -> Option<Result<u64, &'a str>> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(row))?;
    let word = rest.split_whitespace().next()?;
    Some(word.parse().map_err(|_| word))
}

#[cfg(test)]
mod tests {
    use super::super::finding::{exit_status, text};
    use super::*;

    fn fine() -> Limits {
        Limits {
            receive: Some(BUFFER),
            send: Some(BUFFER),
            somaxconn: Some(4_096),
            process: format!("{LOCKED_ROW}  65536  65536  bytes\n{FILES_ROW}  1024  9  files\n"),
            verbs: false,
        }
    }

    #[test]
    fn sufficient_limits_are_no_finding() {
        assert_eq!(fine().findings(), []);
        let unlimited = Limits {
            process: format!("{LOCKED_ROW}  unlimited  unlimited  bytes\n"),
            verbs: true,
            ..fine()
        };
        assert_eq!(unlimited.findings(), []);
    }

    #[test]
    fn each_limit_is_named_with_its_command() {
        let low = Limits {
            receive: Some(212_992),
            send: Some(65_536),
            somaxconn: Some(128),
            process: format!("{LOCKED_ROW}  65536  x  bytes\n{FILES_ROW}  256  9  files\n"),
            verbs: true,
        };
        let findings = low.findings();
        let said = text(&findings);
        for words in [
            "receive buffers end at 208 KiB",
            "    sysctl -w net.core.rmem_max=8388608\n",
            "multicast are slow",
            "net.core.wmem_max is 65536",
            "net.core.somaxconn is 128",
            "locked memory is limited to 64 KiB",
            "    ulimit -l unlimited\n",
            "a process may open 256 files",
        ] {
            assert!(said.contains(words), "{words}\n{said}");
        }
        assert_eq!(exit_status(&findings), 1);
    }

    #[test]
    fn fair_buffers_are_for_information() {
        let fair = Limits {
            receive: Some(4 << 20),
            ..fine()
        };
        assert_eq!(exit_status(&fair.findings()), 0);
        assert!(text(&fair.findings()).contains("4096 KiB"));
    }
}
