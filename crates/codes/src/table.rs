//! The table of codes, grouped by hundreds.

use std::fmt::{Display, Formatter, Result as Written};

/// Groups by hundreds, with their names.
pub const GROUPS: [(u16, &str); 7] = [
    (1, "Settings"),
    (2, "Rails, addresses and the host"),
    (3, "Peers and paths"),
    (4, "Protection"),
    (5, "MPI and launch"),
    (6, "Lab and tools"),
    (7, "Faults of Marline"),
];

/// Numbers of former codes, which are never given again.
pub const RETIRED: &[u16] = &[];

/// Makes the enum and its table. Two codes with one number do not compile.
macro_rules! codes {
    ($($name:ident = $number:literal, $title:literal, $remedy:literal;)*) => {
        /// The code of a message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Code {
            $(#[doc = $title] $name = $number,)*
        }

        impl Code {
            /// All codes, by number.
            pub const ALL: &'static [Code] = &[$(Code::$name),*];

            /// The kind of message, in a few words.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }

            /// The remedy: a step for the user, or the place to look at.
            pub fn remedy(self) -> &'static str {
                match self { $(Code::$name => $remedy,)* }
            }
        }
    };
}

codes! {
    SettingWrong = 101, "Setting unknown or malformed", "Correct it: docs/settings.md.";
    SettingFormer = 102, "Former name of a setting", "Use the new name.";
    SettingsDiffer = 103, "Settings of two processes differ",
        "Set the variable alike on all hosts: docs/settings.md#settings-of-both-sides.";
    ProfileUnusable = 104, "The machine's profile is not used",
        "`marline tune` makes a new one.";

    CannotStart = 201, "The library cannot start",
        "`marline doctor` examines the host. *Address already in use*: `FI_MARLINE_PORT` serves \
         one process per host; unset it, or give a range by `FI_MARLINE_PORTS`.";
    NoRail = 202, "No rail to other hosts",
        "Set an interface up with an address; name it in `FI_MARLINE_RAILS`.";
    RailDown = 203, "A rail or its interface is down, or up again",
        "Cable, NIC, switch port: `ip -s link`, `ethtool`.";
    RailAwaited = 204, "A rail waits for its interface, or has it",
        "If none comes, correct `FI_MARLINE_RAILS`.";
    RailMoved = 205, "A rail's address or name changed",
        "If the rail is down: give its interface an address.";
    RailStuck = 206, "A rail takes no packets, or ends no write",
        "Others carry. NIC, driver, `journalctl -k`.";
    RailInstead = 207, "A rail of another kind is used", "See docs/xdp.md.";
    RailUnwatched = 208, "Interfaces cannot be watched", "Traffic alone shows faults.";
    LockedMemory = 209, "Memory cannot be registered",
        "`ulimit -l unlimited` (at least 11 MB for each rail of a process), in the batch system, \
         too; else long messages are copied.";
    KernelLimit = 210, "A limit of the kernel is low",
        "As root: `sysctl -w net.core.rmem_max=8388608`, or what `marline doctor` prints.";
    BadAddress = 211, "An address is not usable",
        "Insert what `fi_getname` gives, or `fi_marline://HOST:PORT`.";
    Subnets = 212, "Addresses or subnets collide",
        "One subnet per rail, one host per address: docs/networks.md.";
    Roce = 213, "An adapter is not set up for RoCE",
        "Its interface needs an address, its port PFC, ECN and DSCP.";
    Clock = 214, "Clocks of hosts differ", "`timedatectl set-ntp true`, or chrony.";

    PeerDead = 301, "A peer is dead",
        "By the reason: *its process is gone*: the program's output there, `journalctl -k`; other \
         ranks are victims. *Refuses*: the same, or a firewall. *Silent on every rail*: power, \
         cables, a stopped process; from the start on: a firewall that stops UDP, or rails that do \
         not connect these hosts. *Heard, but nothing arrives*: a cable, port or firewall that \
         carries one direction.";
    PeerAwaited = 302, "A silent host is waited for",
        "Said every 10 s by one process of each waiting host. A restarting switch takes a minute; \
         the job goes on when the host answers.";
    PathDown = 303, "A path is lost, or back",
        "Others carry. Cables, switch ports; `marline report` names what bad paths share.";
    PathSuspect = 304, "A path is in doubt, or cleared",
        "If often: a lossy link, or a loaded host.";
    Corrupt = 305, "Packets arrive damaged",
        "They are sent again. NICs, cables and switch ports of the rail.";
    PathShrank = 306, "Long packets vanish, or MTUs differ",
        "One MTU on all interfaces and switches of the rail.";
    NoCommonRail = 307, "No rail reaches a peer",
        "`marline doctor --hosts`; compare `FI_MARLINE_RAILS` of both.";
    VersionsDiffer = 308, "Versions differ",
        "Install one version on all hosts (`marline --version`).";
    Blocked = 309, "A network refuses or drops packets",
        "A firewall (`marline doctor --firewall` prints rules), or a cable if nothing passes.";
    Undelivered = 310, "Endpoint closed before all messages were acked",
        "Peers may not have got them: the program ended too early.";
    RemoteRefused = 311, "Access to remote memory is refused",
        "A wrong or closed window, or `FI_MARLINE_RMA=off`.";
    Loss = 312, "A network loses packets",
        "Cable, NIC, switch port; on all rails: overload.";
    OneRail = 313, "Few rails", "Nothing takes over if the last fails: add one.";

    Forged = 401, "Packets without the job's key",
        "Dropped. Another job, or a stranger: docs/design/security.md.";
    KeyDiffers = 402, "Keys of two processes differ",
        "One `FI_MARLINE_KEY` (`_KEY_FILE`) and `FI_MARLINE_AUTH` for all processes of a job.";
    NoKey = 403, "The ranks have no key",
        "`marline run`, `marline env`, or `FI_MARLINE_KEY_FILE`.";
    Unprotected = 404, "A protection is switched off", "Unset the variable.";

    NotUsed = 501, "Nothing was sent over Marline",
        "All ranks used the MPI's shared memory (`--no-shm`), the program was built for another \
         MPI, or a file of the MPI's settings chose another transport.";
    StatisticsRoom = 502, "No place for statistics",
        "`/dev/shm` is full or cannot be written; MPICH dies of a *Bus error* there. Or set \
         `FI_MARLINE_STATS_DIR`.";
    MpiUnusable = 503, "MPI not found, or not usable",
        "Name `mpiexec` by its path. *Without the device ch4:ofi*: Debian's MPICH uses UCX; \
         `pip install mpich` has libfabric.";
    LibraryMissing = 504, "Marline's library is not found",
        "Install it on every host, or `--provider-dir`.";
    Contradiction = 505, "Another transport is chosen",
        "Leave the argument or variable away, or go without `marline`.";
    NotPreloaded = 506, "A library is not preloaded",
        "Install all libraries in one directory, without blanks and colons in its path, or say \
         `--no-preload`.";
    MpiHazard = 507, "A setting meets a fault of the MPI", "Unset it.";
    ProgramStart = 508, "The program cannot be started", "Its path and permissions.";
    NoMulticast = 509, "Broadcasts go point to point",
        "The network carries no multicast: docs/multicast.md.";
    Killed = 510, "A process ended without MPI_Finalize",
        "Its output, `journalctl -k`, the batch system's log.";
    HintsRefused = 511, "More is asked of libfabric than there is",
        "The program and its MPI have to ask for less.";
    MatchedReceive = 512, "A matched receive is too large",
        "Receive less than 2 GiB, or without gaps.";
    Truncated = 513, "A receive is shorter than its message", "Post a longer one.";

    Lab = 601, "A lab cannot be made or used", "`marline lab down` cleans up.";
    DoctorFailed = 602, "A host cannot be examined",
        "`ssh` or `srun` has to reach it and `marline` there.";
    StatisticsUnreadable = 603, "Statistics are unreadable", "Read them as their user or root.";
    Output = 604, "Output cannot be written", "Disk, permissions.";
    CommandLine = 605, "Wrong arguments", "`--help` shows them.";
    ToolFailed = 606, "A measurement or simulation failed", "The message says why.";
    Namespaces = 607, "Namespaces are refused",
        "Root, or the `sysctl` of the message; in a container `--privileged`.";
    NoLab = 608, "No such lab", "`marline lab up`; of a broken one `marline lab down` first.";
    ToolMissing = 609, "A tool is missing", "Install the package named.";
    NoStatistics = 610, "No statistics", "A job keeps them in `FI_MARLINE_STATS_DIR`.";
    NoAnswer = 611, "The other end of a measurement is silent",
        "`marline tune --serve` there; firewalls.";

    Internal = 701, "Internal error",
        "A bug of Marline: report it with the output at `FI_LOG_LEVEL=info`.";
}

impl Code {
    /// The number: 301 of `MARLINE-E301`.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The code with this number.
    pub fn of_number(number: u16) -> Option<Code> {
        let mut all = Code::ALL.iter().copied();
        all.find(|code| code.number() == number)
    }

    /// The code that a text names: `MARLINE-E301`, `E301` or `301`.
    pub fn named(text: &str) -> Option<Code> {
        let upper = text.to_ascii_uppercase();
        let digits = upper.strip_prefix("MARLINE-").unwrap_or(&upper);
        let digits = digits.strip_prefix('E').unwrap_or(digits);
        Code::of_number(digits.parse().ok()?)
    }

    /// The code without the name of the project, for narrow lines: `E301`.
    pub fn short(self) -> String {
        format!("E{}", self.number())
    }
}

impl Display for Code {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        f.pad(&format!("MARLINE-E{}", self.number()))
    }
}
