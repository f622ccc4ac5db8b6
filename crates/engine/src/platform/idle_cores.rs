//! Finds idle cores and pins threads to them.
//!
//! A core is free for a process if the kernel counts as idle the core and all hardware threads that
//! share its execution units, and if no other rank is bound to it: a sleeping rank will want its
//! core soon. The cores of a job are those of the process that started its ranks (`mpiexec`'s
//! proxy), if that is visible; otherwise those of this rank.

use std::fs::read_to_string;

/// Share of idle time in percent from which a core counts as idle.
const IDLE_PERCENT: u64 = 95;
/// Least kernel ticks (10 ms each) between two meaningful samples.
const TICKS_MIN: u64 = 8;

/// Cores by number.
pub(crate) type Cores = Vec<usize>;

/// Ticks of each core since boot: core, idle ticks, all ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks(Vec<(usize, u64, u64)>);

impl Ticks {
    /// Reads the kernel's counts; `None`: unavailable.
    pub(crate) fn read() -> Option<Ticks> {
        Some(Ticks::parse(&read_to_string("/proc/stat").ok()?))
    }

    fn parse(text: &str) -> Ticks {
        let row = |line: &str| {
            let mut words = line.strip_prefix("cpu")?.split_whitespace();
            let core = words.next()?.parse().ok()?;
            // Columns: user nice system idle iowait irq softirq steal; guest time is part of the
            // first two.
            let ticks: Vec<u64> = words.take(8).map_while(|w| w.parse().ok()).collect();
            let idle = ticks.get(3)? + ticks.get(4)?;
            Some((core, idle, ticks.iter().sum()))
        };
        Ticks(text.lines().filter_map(row).collect())
    }

    /// Cores that were idle from `before` until this sample.
    fn idle_since(&self, before: &Ticks) -> Cores {
        let idle = |&&(core, idle, all): &&(usize, u64, u64)| {
            let then = before.0.iter().find(|row| row.0 == core);
            then.is_some_and(|&(_, idle_then, all_then)| {
                let all = all.saturating_sub(all_then);
                let idle = idle.saturating_sub(idle_then);
                all >= TICKS_MIN && idle * 100 >= all * IDLE_PERCENT
            })
        };
        self.0.iter().filter(idle).map(|row| row.0).collect()
    }
}

/// Cores on which this process and the rest of its job may run.
#[derive(Clone, Debug, Default)]
struct Places {
    /// Cores of this process.
    own: Cores,
    /// Cores of the job on this host, if known.
    job: Option<Cores>,
    /// Cores of the job's other ranks.
    others: Vec<Cores>,
}

impl Places {
    fn read() -> Places {
        let (own, us) = (allowed(0), std::process::id() as i32);
        let parent = std::os::unix::process::parent_id() as i32;
        let children = format!("/proc/{parent}/task/{parent}/children");
        let children = read_to_string(children).unwrap_or_default();
        let ranks: Vec<i32> = (children.split_whitespace())
            .filter_map(|word| word.parse().ok())
            .collect();
        let known = ranks.contains(&us);
        let others = ranks.into_iter().filter(|rank| *rank != us);
        Places {
            own,
            job: known.then(|| allowed(parent)),
            others: others.map(allowed).collect(),
        }
    }

    /// Cores of the job to which no rank is bound.
    fn candidates(&self) -> Cores {
        let job = self.job.as_ref().unwrap_or(&self.own);
        let bound = |core: &usize| {
            let mut others = self.others.iter();
            others.any(|other| other.len() < job.len() && other.contains(core))
        };
        let mut all: Cores = job.iter().chain(&self.own).copied().collect();
        all.sort_unstable();
        all.dedup();
        all.retain(|core| !bound(core));
        all
    }
}

/// Cores of this process's job to which no other rank is bound.
pub(crate) fn job_cores() -> Cores {
    Places::read().candidates()
}

/// Cores that this process may use and that were idle from `before` until `now`: first those that
/// share a cache with the core of this thread; none of another socket.
pub(crate) fn free_cores(before: &Ticks, now: &Ticks) -> Cores {
    let idle = now.idle_since(before);
    let mut free = job_cores();
    free.retain(|core| {
        let whole = || listed(*core, "topology/thread_siblings_list").unwrap_or(vec![*core]);
        idle.contains(core) && whole().iter().all(|thread| idle.contains(thread))
    });
    // SAFETY: no pointers.
    let here = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0);
    let near = |what| listed(here, what).unwrap_or_default();
    let (cache, socket) = (
        near("cache/index3/shared_cpu_list"),
        near("topology/package_cpus_list"),
    );
    free.retain(|core| socket.is_empty() || socket.contains(core));
    free.sort_by_key(|core| !cache.contains(core));
    free
}

/// A list of cores from the kernel's description of a core.
fn listed(core: usize, what: &str) -> Option<Cores> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/{what}");
    parse_list(read_to_string(path).ok()?.trim())
}

/// Parses numbers and ranges, as in `0-3,8`.
fn parse_list(text: &str) -> Option<Cores> {
    let mut cores = Cores::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        cores.extend(from.parse::<usize>().ok()?..=to.parse().ok()?);
    }
    Some(cores)
}

/// Cores on which a process may run (0: this thread); empty if the kernel does not tell.
fn allowed(process: i32) -> Cores {
    // SAFETY: an all-zero set is an empty one, and the kernel writes no more than its size.
    let (found, set) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        (libc::sched_getaffinity(process, size, &mut set), set)
    };
    let in_set = |core: &usize| {
        // SAFETY: `core` is below the size of the set.
        unsafe { libc::CPU_ISSET(*core, &set) }
    };
    let all = 0..8 * size_of::<libc::cpu_set_t>();
    all.filter(|core| found == 0 && in_set(core)).collect()
}

/// Pins this thread to these cores; `false`: the kernel refused.
pub(crate) fn stay_on(cores: &[usize]) -> bool {
    // SAFETY: an all-zero set is an empty one, and has room for these cores.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        let fit = cores.iter().filter(|core| **core < 8 * size);
        fit.for_each(|core| libc::CPU_SET(*core, &mut set));
        libc::sched_setaffinity(0, size, &set) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(rows: &[(u64, u64)]) -> Ticks {
        let lines = rows
            .iter()
            .enumerate()
            .map(|(core, (busy, idle))| format!("cpu{core} {busy} 0 0 {idle} 0 0 0 0 0 0\n"));
        let lines: String = lines.collect();
        Ticks::parse(&format!("cpu  1 2 3 4 5 6 7 8 9 10\n{lines}intr 5 4\n"))
    }

    #[test]
    fn a_core_is_idle_if_nobody_used_it_meanwhile() {
        let before = ticks(&[(100, 900), (100, 900), (0, 0), (5, 5)]);
        let now = ticks(&[(100, 1_000), (110, 990), (95, 5), (5, 12)]);
        assert_eq!(
            now.idle_since(&before),
            [0],
            "busy, busy, and too early to say"
        );
        let iowait = Ticks::parse("cpu0 0 0 0 0 50 0 0 0\n");
        assert_eq!(
            iowait.idle_since(&Ticks::parse("cpu0 0 0 0 0 0 0 0 0\n")),
            [0]
        );
        let stolen = Ticks::parse("cpu0 0 0 0 50 0 0 0 50\n");
        assert_eq!(
            stolen.idle_since(&Ticks::parse("cpu0 0 0 0 0 0 0 0 0\n")),
            []
        );
        assert_eq!(
            now.idle_since(&Ticks::default()),
            [],
            "nothing is known of before"
        );
    }

    /// Two polling ranks on two cores: both cores are busy, whether the ranks are bound or not.
    #[test]
    fn two_ranks_on_two_cores_leave_none() {
        let before = ticks(&[(0, 0), (0, 0)]);
        let idle = ticks(&[(100, 0), (100, 0)]).idle_since(&before);
        assert_eq!(idle, []);
        let bound = Places {
            own: vec![0],
            job: Some(vec![0, 1]),
            others: vec![vec![1]],
        };
        assert_eq!(bound.candidates(), [0], "its own, which it uses");
    }

    #[test]
    fn cores_of_other_ranks_are_not_free_while_those_sleep() {
        let all = || (0..4).collect::<Cores>();
        let mut places = Places {
            own: vec![0],
            job: Some(all()),
            others: vec![vec![1]],
        };
        assert_eq!(places.candidates(), [0, 2, 3]);
        places.others.push(all());
        assert_eq!(places.candidates(), [0, 2, 3], "one that is bound to none");
        places.job = None;
        assert_eq!(places.candidates(), [0], "the job is not known");
    }

    #[test]
    fn lists_of_the_kernel_are_read() {
        assert_eq!(parse_list("0-2,7"), Some(vec![0, 1, 2, 7]));
        assert_eq!(parse_list("5"), Some(vec![5]));
        assert_eq!(parse_list(""), None);
    }

    #[test]
    fn this_process_may_run_somewhere() {
        assert!(!allowed(0).is_empty());
        assert!(!stay_on(&[usize::MAX]), "on none");
        assert!(!job_cores().is_empty());
        assert!(Ticks::read().is_some_and(|ticks| !ticks.0.is_empty()));
    }
}
