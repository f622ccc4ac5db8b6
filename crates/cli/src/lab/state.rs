//! The state of a lab, and its file.

use super::fault::Active;
use crate::tool;
use marline_engine::owned;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Overrides the directory of labs' states; set for all programs inside a lab.
pub const STATE_DIR_VARIABLE: &str = "MARLINE_LAB_DIR";
/// Marks every process of a lab, so that `down` finds them after a crash, too.
pub const HOME_VARIABLE: &str = "MARLINE_LAB_HOME";
/// The state file's name in a lab's directory.
pub const STATE_FILE: &str = "state";
/// First line of the state file.
const MAGIC: &str = "marline-lab 3";

/// A process, identified by number and start time, since numbers are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proc {
    /// Process number.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

impl Proc {
    /// The running process with this number.
    pub fn from_pid(pid: u32) -> Option<Proc> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command name, in parentheses, may contain any character, so fields are counted after
        // it.
        let after_name = stat.rsplit_once(") ")?.1;
        const START_TIME_FIELD: usize = 19;
        // A zombie counts as ended.
        if after_name.starts_with(['Z', 'X']) {
            return None;
        }
        let start_ticks = after_name.split(' ').nth(START_TIME_FIELD)?.parse().ok()?;
        Some(Proc { pid, start_ticks })
    }

    /// True if this process still runs.
    pub fn is_alive(&self) -> bool {
        Proc::from_pid(self.pid) == Some(*self)
    }
}

/// The shape of a lab, from the arguments of `up`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of hosts.
    pub hosts: usize,
    /// Number of rails.
    pub rails: usize,
    /// MTU of the rails in bytes.
    pub mtu: u32,
    /// Rails have IPv6 addresses instead of IPv4 ones.
    pub ipv6: bool,
    /// Rails are cables between two hosts, without a switch: faster, but without faults.
    pub direct: bool,
}

/// A lab.
#[derive(Clone, Debug)]
pub struct Lab {
    /// The lab's name.
    pub name: String,
    /// The lab's directory.
    pub dir: PathBuf,
    /// The lab's shape.
    pub shape: Shape,
    /// Holder of the namespaces of the switches and the launcher.
    pub switch: Option<Proc>,
    /// Holders of the hosts.
    pub hosts: Vec<Proc>,
    /// True if `up` completed.
    pub complete: bool,
    /// Rails whose segmentation offload is off.
    pub no_offload: Vec<usize>,
    /// Faults in force.
    pub faults: Vec<Active>,
}

/// Refuses names that are invalid as a file, host or device name.
pub fn check_name(name: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let ends_well = |n: &str| !n.starts_with('-') && !n.ends_with('-');
    if !name.is_empty() && name.len() <= 32 && name.chars().all(good) && ends_well(name) {
        return Ok(());
    }
    Err(format!(
        "lab name `{name}`: use 1 to 32 of a-z, 0-9 and - inside"
    ))
}

impl Lab {
    /// A lab in `dir` that has not been built.
    pub fn new(dir: &Path, name: &str, shape: Shape) -> Lab {
        Lab {
            name: name.to_owned(),
            dir: dir.to_owned(),
            shape,
            switch: None,
            hosts: Vec::new(),
            complete: false,
            no_offload: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// True if `up` completed and every holder is alive.
    pub fn is_running(&self) -> bool {
        let mut holders = self.switch.iter().chain(&self.hosts);
        self.complete && self.switch.is_some() && holders.all(Proc::is_alive)
    }

    /// Reads the state file in `dir`.
    pub fn load(dir: &Path) -> Result<Lab, String> {
        let path = dir.join(STATE_FILE);
        let read = || -> std::io::Result<String> {
            let mut text = String::new();
            owned::open(fs::OpenOptions::new().read(true), &path)?.read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().map_err(|e| format!("{}: {e}", path.display()))?;
        parse(dir, &text).ok_or_else(|| format!("{}: not a state file of ours", path.display()))
    }

    /// Writes the state file atomically.
    pub fn save(&self) -> Result<(), String> {
        // The temporary file is beside the lab's directory, which therefore has a complete state or
        // none.
        let new = self.dir.with_extension("new");
        let write = || -> std::io::Result<()> {
            tool::write_new(&new, self.to_text().as_bytes())?;
            fs::rename(&new, self.dir.join(STATE_FILE))
        };
        write().map_err(|e| {
            let _ = fs::remove_file(&new);
            format!("{}: {e}", self.dir.display())
        })
    }

    /// The state file's text.
    fn to_text(&self) -> String {
        use std::fmt::Write;
        let Shape {
            hosts,
            rails,
            mtu,
            ipv6,
            direct,
        } = self.shape;
        let mut text = format!(
            "{MAGIC}\nname {}\nshape {hosts} {rails} {mtu} {ipv6} {direct}\n",
            self.name
        );
        let _ = writeln!(text, "complete {}", self.complete);
        if let Some(p) = self.switch {
            let _ = writeln!(text, "switch {} {}", p.pid, p.start_ticks);
        }
        for p in &self.hosts {
            let _ = writeln!(text, "host {} {}", p.pid, p.start_ticks);
        }
        for rail in &self.no_offload {
            let _ = writeln!(text, "no-offload {rail}");
        }
        for fault in &self.faults {
            let _ = writeln!(text, "fault {}", fault.to_line());
        }
        text
    }

    /// Interface names of the rails, the same on every host.
    pub fn rail_names(&self) -> Vec<String> {
        (0..self.shape.rails).map(rail_name).collect()
    }

    /// Host name of host number `host`.
    pub fn host_name(&self, host: usize) -> String {
        format!("{}-h{host}", self.name)
    }

    /// The number of host `word`: `ml-h1`, `h1` or `1`.
    pub fn find_host(&self, word: &str) -> Result<usize, String> {
        let prefix = format!("{}-", self.name);
        let short = word.strip_prefix(&prefix).unwrap_or(word);
        let number = short.strip_prefix('h').unwrap_or(short).parse::<usize>();
        match number {
            Ok(n) if n < self.shape.hosts => Ok(n),
            _ => Err(format!(
                "no host `{word}`: this lab has h0 to h{}",
                self.shape.hosts - 1
            )),
        }
    }

    /// The number of rail `word`: `rail1` or `1`.
    pub fn find_rail(&self, word: &str) -> Result<usize, String> {
        match word.strip_prefix("rail").unwrap_or(word).parse::<usize>() {
            Ok(n) if n < self.shape.rails => Ok(n),
            _ => Err(format!(
                "no rail `{word}`: this lab has rail0 to rail{}",
                self.shape.rails - 1
            )),
        }
    }
}

/// The interface name of a rail on its hosts.
pub fn rail_name(rail: usize) -> String {
    format!("rail{rail}")
}

fn parse(dir: &Path, text: &str) -> Option<Lab> {
    let mut lines = text.lines();
    if lines.next()? != MAGIC {
        return None;
    }
    let name = lines.next()?.strip_prefix("name ")?;
    let words: Vec<&str> = lines.next()?.split(' ').collect();
    let ["shape", hosts, rails, mtu, ipv6, direct] = words[..] else {
        return None;
    };
    let shape = Shape {
        hosts: hosts.parse().ok()?,
        rails: rails.parse().ok()?,
        mtu: mtu.parse().ok()?,
        ipv6: ipv6.parse().ok()?,
        direct: direct.parse().ok()?,
    };
    let mut lab = Lab::new(dir, name, shape);
    for line in lines {
        let (key, rest) = line.split_once(' ')?;
        match key {
            "complete" => lab.complete = rest.parse().ok()?,
            "switch" => lab.switch = Some(parse_proc(rest)?),
            "host" => lab.hosts.push(parse_proc(rest)?),
            "no-offload" => lab.no_offload.push(rest.parse().ok()?),
            "fault" => lab.faults.push(Active::from_line(rest)?),
            _ => return None,
        }
    }
    Some(lab)
}

fn parse_proc(words: &str) -> Option<Proc> {
    let (pid, start) = words.split_once(' ')?;
    Some(Proc {
        pid: pid.parse().ok()?,
        start_ticks: start.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab() -> Lab {
        Lab::new(
            Path::new("/x/t"),
            "t",
            Shape {
                hosts: 3,
                rails: 2,
                mtu: 9000,
                ipv6: true,
                direct: true,
            },
        )
    }

    #[test]
    fn state_survives_the_file() {
        let mut lab = lab();
        lab.switch = Some(Proc {
            pid: 7,
            start_ticks: 99,
        });
        lab.hosts = vec![
            Proc {
                pid: 8,
                start_ticks: 100
            };
            3
        ];
        lab.complete = true;
        lab.no_offload = vec![1];
        let again = parse(&lab.dir, &lab.to_text()).expect("own text parses");
        assert_eq!(again.to_text(), lab.to_text());
    }

    #[test]
    fn a_torn_or_foreign_file_is_no_state() {
        let text = lab().to_text();
        for end in 0..text.len() - 1 {
            // A state cut off anywhere gives an error or a smaller lab, never a panic.
            let _ = parse(Path::new("/x"), &text[..end]);
        }
        assert!(parse(Path::new("/x"), "hello\n").is_none());
    }

    #[test]
    fn hosts_and_rails_have_long_and_short_names() {
        let lab = lab();
        for word in ["t-h2", "h2", "2"] {
            assert_eq!(lab.find_host(word), Ok(2), "{word}");
        }
        assert!(lab.find_host("h3").is_err());
        assert_eq!(lab.find_rail("rail1"), Ok(1));
        assert_eq!(lab.find_rail("0"), Ok(0));
        assert!(lab
            .find_rail("rail2")
            .unwrap_err()
            .contains("rail0 to rail1"));
    }

    #[test]
    fn this_process_is_alive_and_its_past_is_not() {
        let me = Proc::from_pid(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert!(!Proc {
            start_ticks: me.start_ticks + 1,
            ..me
        }
        .is_alive());
    }
}
