//! Faults from a file instead of a seed, one per line: `FROM TO TARGET FAULT`, as in `5ms 30ms 0:1
//! blackhole out`. (See `docs/simulator.md`.)

use crate::machine::place::SITES;
use crate::setup::choices::{FalseReport, Fault, Setup, Trouble};
use marline_proto::Config;

/// Parses a script for this number of hosts and rails. Errors name the line and the reason.
pub fn parse(text: &str, hosts: usize, rails: usize) -> Result<Vec<Fault>, String> {
    let lines = text.lines().enumerate();
    let meant = |line: &str| !line.is_empty() && !line.starts_with('#');
    let lines = lines.map(|(i, line)| (i + 1, line.trim()));
    let faults = lines.filter(|(_, line)| meant(line)).map(|(number, line)| {
        let words: Vec<&str> = line.split_whitespace().collect();
        fault(&words, hosts, rails).map_err(|why| format!("line {number}: {why}: {line}"))
    });
    faults.collect()
}

impl Setup {
    /// Replaces all faults of the setup.
    pub fn follow(&mut self, faults: &[Fault]) {
        self.packet_faults = Default::default();
        self.faults = faults.to_vec();
        let ends = faults.iter().map(|f| f.to_ns).max().unwrap_or(0);
        self.faults_end_ns = self.faults_end_ns.max(ends);
        // Without sums damage would go unnoticed.
        if faults.iter().any(Fault::damages) {
            self.node.summed = Config::default().summed;
            self.detect_damage();
        }
        // Endpoints that hear nothing for this long declare each other dead.
        let timeout_ns = self.node.peer_timeout_ns;
        self.may_die = faults.iter().any(|f| f.to_ns - f.from_ns >= timeout_ns);
    }
}

fn fault(words: &[&str], hosts: usize, rails: usize) -> Result<Fault, String> {
    let [from, to, target, what @ ..] = words else {
        return Err("write FROM TO TARGET FAULT".into());
    };
    let (from_ns, to_ns) = (time(from)?, time(to)?);
    if from_ns >= to_ns {
        return Err("it ends before it begins".into());
    }
    let index = |text: &str, count: usize, of: &str| {
        let number = text.parse().ok().filter(|&n: &usize| n < count);
        number.ok_or(format!("{of} {text}: there are 0 to {}", count - 1))
    };
    let what = match target.split_once(':') {
        Some((host, rail)) => {
            let at = (index(host, hosts, "host")?, index(rail, rails, "rail")?);
            of_rail(at, what)?
        }
        None if *target == "all" => partition(what, hosts)?,
        None => of_host(index(target, hosts, "host")?, what)?,
    };
    Ok(Fault {
        from_ns,
        to_ns,
        what,
    })
}

fn of_rail((host, rail): (usize, usize), words: &[&str]) -> Result<Trouble, String> {
    let parts: Vec<(&str, &str)> = words.iter().map(|w| pair(w)).collect();
    Ok(match parts[..] {
        [("down", "")] => Trouble::RailDown {
            host,
            rail,
            notified: true,
        },
        [("silent", "")] => Trouble::RailDown {
            host,
            rail,
            notified: false,
        },
        [("moves", to)] => Trouble::Move {
            host,
            rail,
            to: site(to)?,
        },
        [("hung", "")] => Trouble::Hung { host, rail },
        [("forgets", "")] => Trouble::Forget { host, rail },
        [("refuses", "")] => Trouble::Refuse { host, rail },
        [("blackhole", ""), way] => Trouble::Blackhole {
            host,
            rail,
            outgoing: outgoing(way)?,
        },
        [("drop", part), ("delay", delay)] => Trouble::Gray {
            host,
            rail,
            drop: share(part)?,
            delay_ns: time(delay)?,
        },
        [("drop", part), way] => Trouble::Leak {
            host,
            rail,
            outgoing: outgoing(way)?,
            ppm: share(part)?,
        },
        [("corrupt", part)] => Trouble::Corrupt {
            host,
            rail,
            ppm: share(part)?,
        },
        [("slow", divisor)] => Trouble::Slow {
            host,
            rail,
            divisor: number(divisor)?,
        },
        [("mtu", bytes)] | [("mtu", bytes), ("told", "")] => Trouble::SmallMtu {
            host,
            rail,
            mtu: number(bytes)? as usize,
            notified: parts.len() == 2,
        },
        [("lies", ""), how] => Trouble::Lies {
            host,
            rail,
            how: lie(how)?,
        },
        _ => return Err("no fault of a rail".into()),
    })
}

fn of_host(host: usize, words: &[&str]) -> Result<Trouble, String> {
    let [word] = words else {
        return Err("one fault of a host".into());
    };
    Ok(match pair(word) {
        ("computes", "") => Trouble::Compute { host },
        ("stopped", "") => Trouble::Stopped { host },
        ("dies", "") => Trouble::Death {
            host,
            reborn: false,
        },
        ("restarts", "") => Trouble::Death { host, reborn: true },
        ("clock", by) => Trouble::ClockJump {
            host,
            by_ns: time(by)?,
        },
        _ => return Err("no fault of a host".into()),
    })
}

fn partition(words: &[&str], hosts: usize) -> Result<Trouble, String> {
    let split = match words {
        [word] if word.starts_with("partition=") => number(pair(word).1)? as usize,
        _ => return Err("of all there is partition=HOSTS".into()),
    };
    let sides = (1..hosts).contains(&split);
    let none = format!("a partition is after 1 to {} hosts", hosts - 1);
    sides.then_some(Trouble::Partition { split }).ok_or(none)
}

fn lie(how: (&str, &str)) -> Result<FalseReport, String> {
    Ok(match how {
        ("never", "") => FalseReport::Never,
        ("late", by) => FalseReport::Late(time(by)?),
        ("over-early", "") => FalseReport::OverEarly,
        ("never-over", "") => FalseReport::NeverOver,
        _ => return Err("lies are never, late=TIME, over-early and never-over".into()),
    })
}

fn pair(word: &str) -> (&str, &str) {
    word.split_once('=').unwrap_or((word, ""))
}

fn outgoing(way: (&str, &str)) -> Result<bool, String> {
    match way {
        ("out", "") => Ok(true),
        ("in", "") => Ok(false),
        _ => Err("say in or out".into()),
    }
}

fn site(text: &str) -> Result<u16, String> {
    let site = text.parse().ok().filter(|&n: &u16| n < SITES);
    site.ok_or(format!(
        "{text:?} is no address: there are 0 to {}",
        SITES - 1
    ))
}

fn number(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|n| (1..1 << 32).contains(n));
    number.ok_or(format!("{text:?} is no whole number above 0"))
}

/// A fraction from 0 to 1, in parts per million.
fn share(text: &str) -> Result<u32, String> {
    let share = text.parse().ok().filter(|s| (0.0..=1.0).contains(s));
    let ppm = share.map(|share: f64| (share * 1e6) as u32);
    ppm.ok_or(format!("{text:?} is no share from 0 to 1"))
}

/// A time in nanoseconds.
fn time(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 4] = [
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
    ];
    let digits = text.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = UNITS.iter().find(|(name, _)| *name == unit).map(|u| u.1);
    let count = digits.parse::<u64>().ok();
    // An hour, longer than any run.
    let ns = count.zip(unit).and_then(|(n, unit)| n.checked_mul(unit));
    let ns = ns.filter(|&ns| ns <= 3_600_000_000_000);
    ns.ok_or(format!("{text:?} is no time up to an hour, as 5ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_can_be_written() {
        let text = "# what a switch does that restarts
            5ms 30ms 0:1 down
            0s 1ms 1:0 silent
            1ms 2ms 0:0 blackhole out
            1ms 2ms 0:0 drop=0.25 in
            1ms 2ms 0:0 drop=0.01 delay=5ms
            1ms 2ms 0:0 corrupt=0.001
            1ms 2ms 0:0 slow=10
            1ms 2ms 0:0 hung
            1ms 2ms 0:0 moves=3
            1ms 2ms 0:0 refuses
            1ms 2ms 0:0 forgets
            1ms 2ms 0:0 mtu=1400
            1ms 2ms 0:0 mtu=1400 told
            1ms 2ms 0:0 lies late=300us

            1ms 2ms 1 computes
            1ms 2ms 1 stopped
            1ms 2ms 1 dies
            1ms 2ms 1 restarts
            1ms 2ms 1 clock=600ms
            1ms 2ms all partition=1";
        let faults = parse(text, 2, 2).unwrap();
        assert_eq!(faults.len(), 20);
        let Fault {
            from_ns,
            to_ns,
            what,
        } = faults[3];
        assert_eq!((from_ns, to_ns), (1_000_000, 2_000_000));
        let leak = Trouble::Leak {
            host: 0,
            rail: 0,
            outgoing: false,
            ppm: 250_000,
        };
        assert_eq!(what, leak);
    }

    #[test]
    fn faults_with_damage_enable_sums() {
        let mut setup = Setup::plain(1, 2, 2);
        setup.node.summed = (100, 70_000);
        setup.follow(&parse("1ms 2ms 0:0 down", 2, 2).unwrap());
        assert_eq!(setup.node.summed, (100, 70_000));
        setup.follow(&parse("1ms 2ms 0:0 corrupt=0.1", 2, 2).unwrap());
        assert_eq!(setup.node.summed, Config::default().summed);
    }

    #[test]
    fn parse_errors_name_their_line() {
        for (line, why) in [
            ("5ms", "write FROM TO TARGET FAULT"),
            ("5ms 4ms 0:0 down", "ends before it begins"),
            ("5 9ms 0:0 down", "\"5\" is no time"),
            ("1ms 99999999999999s 0:0 down", "no time up to an hour"),
            ("1ms 2ms 2:0 down", "host 2: there are 0 to 1"),
            ("1ms 2ms 0:9 down", "rail 9: there are 0 to 1"),
            ("1ms 2ms 0:0 explode", "no fault of a rail"),
            ("1ms 2ms 0:0 drop=2 in", "no share from 0 to 1"),
            ("1ms 2ms 0:0 drop=0.1 up", "say in or out"),
            ("1ms 2ms 0:0 moves=9", "no address: there are 0 to 5"),
            ("1ms 2ms 0:0 slow=0", "no whole number above 0"),
            ("1ms 2ms é sleeps", "host é"),
            ("1ms 2ms 0 sleeps", "no fault of a host"),
            ("1ms 2ms all partition=2", "after 1 to 1 hosts"),
            ("1ms 2ms 0:0 lies often", "lies are never"),
        ] {
            let text = format!("\n{line}\n");
            let error = parse(&text, 2, 2).unwrap_err();
            assert!(error.contains(why) && error.contains("line 2"), "{error}");
        }
    }
}
