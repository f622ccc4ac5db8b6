//! The promises of a group, checked while it runs and when all is over.

use super::member::Member;
use super::setup::{GroupSetup, Spec};
use marline_proto::group::{End, GroupHeld, AHEAD};

/// Time for the consequences of a death: one check interval until it is noticed, and a few round
/// trips.
const SLACK_NS: u64 = 100_000_000;
/// Time in which members find out that the network no longer carries multicast, even if reminders
/// are lost.
const FOUND_OUT_NS: u64 = 500_000_000;
/// Longest time without news of a broadcast that a member lacks: the promise of
/// `docs/multicast.md`.
const SILENCE_NS: u64 = 1_000_000_000;

/// Checks that a member's memory is within its bounds.
pub(super) fn bounds(setup: &GroupSetup, spec: &Spec, member: &Member) -> Result<(), String> {
    let (early, kept, copied) = member.memory.buffered();
    let window = spec.scheme.window as u64 * setup.chunk as u64;
    let held = member.group.held();
    let all = [
        ("early buffers", early, setup.early_max),
        ("others' chunks", kept, setup.keep_max),
        ("own copies", copied, window),
        ("early buffers, counted", held.early_bytes, setup.early_max),
        ("others' chunks, counted", held.kept_bytes, setup.keep_max),
        ("own copies, counted", held.copied_bytes, window),
    ];
    for (what, bytes, most) in all {
        if bytes > most {
            return Err(format!("{bytes} bytes of {what}, at most {most}"));
        }
    }
    Ok(())
}

/// Returns whether a member keeps nothing and waits for no other.
pub(super) fn is_over(member: &Member) -> bool {
    member.memory.open == 0
        && member.group.held() == GroupHeld::default()
        && member.memory.buffered() == (0, 0, 0)
}

/// Earliest time at which an operation can begin: when all receives of its member that are `AHEAD`
/// or more operations before it have ended.
fn begins_at(spec: &Spec, member: &Member, n: usize) -> u64 {
    let before = n.saturating_sub(AHEAD as usize - 1);
    let receives = |m: &usize| spec.script[*m].0 != member.me;
    let ends = (0..before).filter(receives);
    let ends = ends.filter_map(|m| Some(member.memory.operations[m].end?.1));
    ends.max()
        .unwrap_or(0)
        .max(member.memory.operations[n].posted_at)
}

/// Checks how one member's operation has ended.
fn ending(setup: &GroupSetup, spec: &Spec, member: &Member, n: usize) -> Result<(), String> {
    let operation = &member.memory.operations[n];
    let Some((end, at)) = operation.end else {
        return Err(format!("operation {n} has not ended"));
    };
    let dead = match end {
        End::Well | End::NotCarried => return Ok(()),
        End::Mismatch => return Err(format!("operation {n} ends in a mismatch")),
        End::Dead(dead) => dead,
    };
    let died = spec
        .members
        .get(dead as usize)
        .and_then(|&p| setup.death_of(p));
    let Some(died) = died.filter(|&died| died <= at) else {
        return Err(format!(
            "operation {n} ends with the death of {dead}, which lives"
        ));
    };
    let receives = spec.script[n].0 == dead;
    let waits_from = died.max(begins_at(spec, member, n));
    if receives && at > waits_from + setup.detect_ns + SLACK_NS {
        let late = (at - waits_from) / 1_000_000;
        return Err(format!("operation {n} outlived its root by {late} ms"));
    }
    Ok(())
}

/// Time at which all permanent faults have begun and all others are over.
fn settled_at(setup: &GroupSetup) -> u64 {
    let times = setup.faults.iter().map(|fault| match fault.to_ns {
        u64::MAX => fault.from_ns,
        over => over,
    });
    times.max().unwrap_or(0)
}

/// Virtual times in ns of the broadcasts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// The longest that a broadcast took from the moment when all members had begun it and all
    /// faults had begun.
    pub longest_ns: u64,
    /// The longest in which a member that lacked some of such a broadcast got nothing of it.
    pub silence: Silence,
}

/// A time in which a member got nothing of a broadcast.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silence {
    /// Number of the member.
    pub member: u16,
    /// Number of the operation.
    pub broadcast: usize,
    /// Virtual time at which it began, in ns.
    pub from_ns: u64,
    /// Its length in ns.
    pub ns: u64,
}

/// The longest time that a broadcast took. It begins when all members have begun the broadcast and
/// have the root's previous one, and all faults are there; it ends when all members have the
/// broadcast. For runs in which everything has ended.
pub(super) fn times(setup: &GroupSetup, spec: &Spec, members: &[&Member]) -> Times {
    let ended = |member: &Member, n: usize| member.memory.operations[n].end.map_or(0, |end| end.1);
    let (mut times, mut before) = (Times::default(), vec![0; spec.members.len()]);
    for (n, &(root, _)) in spec.script.iter().enumerate() {
        let begun = members.iter().map(|member| begins_at(spec, member, n));
        let all_begun = begun.max().unwrap_or(0).max(settled_at(setup));
        let all_have = members.iter().map(|member| ended(member, n)).max();
        let all_have = all_have.unwrap_or(0);
        let previous = &mut before[root as usize];
        let from = all_begun.max(*previous);
        times.longest_ns = times.longest_ns.max(all_have.saturating_sub(from));
        for member in members.iter().filter(|member| member.me != root) {
            let silence = silence(member, n, from);
            if silence.ns > times.silence.ns {
                times.silence = silence;
            }
        }
        *previous = all_have.max(*previous);
    }
    times
}

/// The longest time after `from` in which nothing new of a broadcast arrived at a member that
/// lacked some of it.
fn silence(member: &Member, n: usize, from: u64) -> Silence {
    let operation = &member.memory.operations[n];
    let news = operation.news_at.iter().copied();
    let news = news.chain(operation.end.map(|end| end.1));
    let mut longest = Silence {
        member: member.me,
        broadcast: n,
        from_ns: from,
        ns: 0,
    };
    let mut last = from;
    for at in news.filter(|&at| at > from) {
        if at - last > longest.ns {
            (longest.from_ns, longest.ns) = (last, at - last);
        }
        last = at;
    }
    longest
}

/// Checks what all living members have done together, when everything has ended.
pub(super) fn verdict(setup: &GroupSetup, spec: &Spec, members: &[&Member]) -> Result<(), String> {
    let deaths = spec.members.iter().any(|&p| setup.death_of(p).is_some());
    for n in 0..spec.script.len() {
        for member in members {
            let failed = |text: String| format!("member {}: {text}", member.me);
            ending(setup, spec, member, n).map_err(failed)?;
        }
        let left = |m: &&&Member| matches!(m.memory.operations[n].end, Some((End::NotCarried, _)));
        let count = members.iter().filter(left).count();
        let mixed = count != 0 && count != members.len();
        if mixed && !deaths {
            let all = members.len();
            return Err(format!(
                "operation {n}: {count} of {all} left the group, not all"
            ));
        }
    }
    if !deaths {
        no_silence(setup, spec, members)?;
    }
    found_out(setup, spec, members)
}

/// Checks that no member that lacks some of a broadcast waits for longer than [`SILENCE_NS`] for
/// more of it, whatever the fault.
fn no_silence(setup: &GroupSetup, spec: &Spec, members: &[&Member]) -> Result<(), String> {
    let Silence {
        member,
        broadcast,
        from_ns,
        ns,
    } = times(setup, spec, members).silence;
    match ns < SILENCE_NS {
        true => Ok(()),
        false => Err(format!(
            "member {member}: nothing of operation {broadcast} arrived for {} ms from {from_ns} ns",
            ns / 1_000_000
        )),
    }
}

/// Checks that a network without multicast was left.
fn found_out(setup: &GroupSetup, spec: &Spec, members: &[&Member]) -> Result<(), String> {
    let Some(from) = setup.muted_from().filter(|_| !spec.scheme.alone) else {
        return Ok(());
    };
    // Lost answers delay the departure, so it is not checked on lossy networks.
    let rough = setup.packet_faults.drop.max(setup.packet_faults.corrupt) > 10_000;
    if rough || setup.hard_of_hearing.is_some() {
        return Ok(());
    }
    // Before all members are there, missing multicast is not noticed.
    let from = from.max(setup.late.map_or(0, |(_, at)| at));
    for member in members {
        let went_on = member
            .memory
            .operations
            .iter()
            .enumerate()
            .filter(|(n, operation)| {
                let later = operation.posted_at > from + FOUND_OUT_NS;
                let well = matches!(operation.end, Some((End::Well, _)));
                later && well && spec.script[*n].1 > 0
            });
        let went_on = went_on.count() as u64;
        // A root announces this in the next broadcast that it begins, which may be far ahead of the
        // oldest.
        let ahead = AHEAD.min(spec.depth as u64);
        if went_on > AHEAD + ahead + 8 {
            let me = member.me;
            return Err(format!(
                "member {me}: {went_on} broadcasts without multicast"
            ));
        }
    }
    Ok(())
}
