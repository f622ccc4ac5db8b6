//! The facts of a job in words: each failure, the common factor of bad paths, and the thing to
//! look at.

use super::checks::checks;
use super::data::{Dead, End, Facts, Finding, Outage, Paths, Place, Rail, Severity, Wait};
use super::words::{clock, duration, list, percent};
use marline_codes::Code;
use marline_engine::stats::events::Reason;
use marline_engine::stats::outages::format_gap;
use marline_engine::stats::text::plural;

/// Most outages with a sentence of their own; of more, those at one place share a sentence, since a
/// reader looks for places then.
const OUTAGES_MAX: usize = 8;
/// Most places with a sentence, as many as a page shows.
const PLACES_MAX: usize = 32;

/// All findings, the most important first.
pub fn findings(f: &Facts) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    all.extend(cut_off(f));
    all.extend(f.dead_peers.iter().map(|peer| dead(f, peer)));
    all.extend(common(f, &f.given_up, (Code::PathDown, "given up")));
    all.extend(outages(f));
    all.extend(damage(f));
    all.extend(common(
        f,
        &f.damaged,
        (Code::Corrupt, "with damaged packets"),
    ));
    all.extend(protection(f));
    all.extend(left_behind(f));
    all.extend(RAIL_WARNINGS.iter().filter_map(|warning| warning(f)));
    all.extend(checks(f));
    all.extend(longest_wait(f));
    all.extend(lost(f));
    if f.events_missing > 0 {
        all.push(Finding::note(format!(
            "{} are not kept any more: outages before those in this report may be missing",
            plural(f.events_missing, "older event", "older events")
        )));
    }
    all.sort_by_key(|finding| finding.severity);
    if all.iter().all(|f| f.severity == Severity::Note) {
        all.insert(
            0,
            Finding::note("no rail, path or peer has failed".to_owned()),
        );
    }
    all
}

/// The sentence on a host that was cut off from the others.
fn cut_off(f: &Facts) -> Option<Finding> {
    let host = f.cut_off.as_ref()?;
    let text = format!("all processes that fell silent were on {host}, or silent to {host} only");
    let look_at = cables_of(&format!("host {host}"));
    Some(Finding::fault(Code::PeerDead, text, Some(look_at)))
}

fn cables_of(host: &str) -> String {
    format!("{host}: its power, the cables of its rails and their switch ports")
}

fn dead(f: &Facts, peer: &Dead) -> Finding {
    let host = peer.host.as_deref();
    let place = host.map_or_else(String::new, |host| format!(" on {host}"));
    let when = match peer.from_unix_ns {
        0 => String::new(),
        at => format!(" at {}", clock(at, f.from_unix_ns)),
    };
    let by = plural(peer.named_by as u64, "process", "processes");
    let what = if peer.refused { "refused" } else { "given up" };
    let text = format!(
        "{}{place} was {what} by {by}{when}: {}",
        peer.name, peer.why
    );
    let code = code_of(peer);
    if peer.follows {
        let text =
            format!("{text}; it had given up another peer before, which most likely ended it");
        return Finding::fault(code, text, None);
    }
    if f.cut_off.is_some() && ["silent", "unreachable"].contains(&peer.reason) {
        return Finding::fault(code, text, None);
    }
    let host = host.map_or_else(
        || format!("the host of {}", peer.name),
        |h| format!("host {h}"),
    );
    let look_at = match peer.reason {
        "process-gone" => format!(
            "{host}: the program's own messages and `journalctl -k` (a crash, or no memory left)"
        ),
        "refused" => format!("{host}: a process that ended, or a firewall (`nft list ruleset`)"),
        "unreachable" => {
            format!("{host}: a cable, switch port or firewall that carries one direction only")
        }
        "settings-differ" => "FI_MARLINE_* on all hosts".to_owned(),
        "versions-differ" => "`marline --version` on all hosts".to_owned(),
        "no-common-rail" => "`marline doctor` on both hosts, and FI_MARLINE_RAILS".to_owned(),
        _ => cables_of(&host),
    };
    Finding::fault(code, text, Some(look_at))
}

/// The code of a peer that was given up.
fn code_of(peer: &Dead) -> Code {
    let reasons = Reason::ALL.iter();
    let mut same = reasons.filter(|reason| reason.name() == peer.reason);
    same.next().copied().unwrap_or_default().code_of_peer()
}

/// Sentences on outages, or on their places if there are many.
fn outages(f: &Facts) -> Vec<Finding> {
    let reported = match f.outages.len() {
        ..=OUTAGES_MAX => &f.outages,
        _ => &f.outages_by_place,
    };
    let shown = reported.iter().take(PLACES_MAX);
    let mut all: Vec<Finding> = shown.map(|outage| outage_in_words(f, outage)).collect();
    let more = reported.len().saturating_sub(PLACES_MAX);
    if more > 0 {
        let more = plural(more as u64, "more place", "more places");
        all.push(Finding::note(format!(
            "and outages at {more}: `marline report --json` has all"
        )));
    }
    all
}

fn outage_in_words(f: &Facts, outage: &Outage) -> Finding {
    let at = |unix_ns| clock(unix_ns, f.from_unix_ns);
    let from = at(outage.from_unix_ns);
    let time = match outage.to_unix_ns {
        Some(to) => {
            let lasted = to.saturating_sub(outage.from_unix_ns);
            let within = if outage.times > 1 { "within " } else { "" };
            format!("from {from} to {} ({within}{})", at(to), format_gap(lasted))
        }
        None => format!("from {from} to the end"),
    };
    let times = match outage.times {
        ..=1 => String::new(),
        times => format!("{times} times "),
    };
    let why = if outage.corrupt {
        "was given up for damaged packets"
    } else {
        "was down"
    };
    let moved = plural(outage.packets_moved, "packet", "packets");
    let gap = match outage.gap_ns {
        0 => String::new(),
        gap => format!("; nothing was delivered for {} at most", format_gap(gap)),
    };
    let place = place_of(outage);
    let text = format!("{place} {why} {times}{time}; {moved} moved to other paths{gap}");
    let look_at = match &outage.ends[..] {
        [end] => Some(look_at(&Place::End(end.clone()))),
        [a, b] => Some(look_at(&Place::Between(a.clone(), b.clone()))),
        // The common factor of the bad paths says more about many.
        _ => None,
    };
    let code = match (outage.corrupt, outage.certain) {
        (true, _) => Code::Corrupt,
        (false, true) => Code::RailDown,
        (false, false) => Code::PathDown,
    };
    Finding::fault(code, text, look_at)
}

/// The place of an outage, with the names of several hosts.
fn place_of(outage: &Outage) -> String {
    if outage.ends.len() <= 2 {
        return outage.place.clone();
    }
    let names = outage.ends.iter().map(End::name);
    format!("{} ({})", outage.place, list(names.collect()))
}

/// The sentence on the place that bad paths have in common.
fn common(f: &Facts, bad: &Paths, (code, what): (Code, &str)) -> Option<Finding> {
    let found = bad.common.as_ref()?;
    let (all, shared) = (bad.paths, found.paths);
    let paths = match (all, shared == all) {
        (1, _) => format!("the only path {what}"),
        (2, true) => format!("both paths {what}"),
        (_, true) => format!("all {all} paths {what}"),
        _ => format!("{shared} of {all} paths {what}"),
    };
    let one = all == 1;
    let text = match &found.place {
        Place::End(end) if one => format!("{paths} ends at {}{}", end.name(), reported(f, end)),
        Place::End(end) => format!("{paths} share {}{}", end.name(), reported(f, end)),
        Place::Between(a, b) if one => format!("{paths} is {} to {}", a.name(), b.name()),
        Place::Between(a, b) => format!("{paths} are between {} and {}", a.name(), b.name()),
        Place::Host(host) => format!("{paths} share host {host}"),
        Place::Rail(rail) => format!("{paths} are of {rail}, on several hosts"),
    };
    Some(Finding::fault(code, text, Some(look_at(&found.place))))
}

/// A clause on a rail that its own system reported down.
fn reported(f: &Facts, end: &End) -> &'static str {
    let down = |rail: &Rail| rail.end == *end && rail.downs > 0;
    match f.rails.iter().any(down) {
        true => ", which its own system reported as down",
        false => "",
    }
}

/// The thing to look at for a fault at a place.
fn look_at(place: &Place) -> String {
    match place {
        Place::End(end) => {
            let (name, host, nic) = (end.name(), &end.host, interface(&end.rail));
            format!(
                "{name}: its cable, its switch port and its NIC (on {host}: `ip -s link show \
                 {nic}`, `ethtool -S {nic}`)"
            )
        }
        Place::Between(a, b) => format!(
            "{} and {}: their cables, their switch ports and the switch between them",
            a.name(),
            b.name()
        ),
        Place::Host(host) => format!("host {host}: its power, `journalctl -k`, and its switch"),
        Place::Rail(rail) => format!("the switch of {rail}, which all these paths pass"),
    }
}

/// The interface of a rail: the name without the kind, as in `tcp:rail0`.
fn interface(rail: &str) -> &str {
    rail.rsplit_once(':').map_or(rail, |(_, name)| name)
}

/// Rails with a count above 0, the greatest first, in words, and the total.
fn counted(f: &Facts, count: impl Fn(&Rail) -> u64) -> Option<(u64, String)> {
    let mut rails: Vec<(u64, String)> = f
        .rails
        .iter()
        .map(|rail| (count(rail), rail.end.name()))
        .filter(|(count, _)| *count > 0)
        .collect();
    rails.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let total = rails
        .iter()
        .fold(0, |sum: u64, (n, _)| sum.saturating_add(*n));
    let names = rails.iter().map(|(n, name)| format!("{name} ({n})"));
    (total > 0).then(|| (total, list(names.collect())))
}

fn damage(f: &Facts) -> Option<Finding> {
    let (total, places) = counted(f, |rail| rail.corrupt)?;
    let received = f.rails.iter().fold(0, |sum: u64, rail| {
        sum.saturating_add(rail.packets_received)
    });
    let first = f.rails.iter().max_by_key(|rail| rail.corrupt)?;
    let text = format!(
        "{} arrived damaged ({} of all received): at {places}",
        plural(total, "packet", "packets"),
        percent(total, received)
    );
    // The place that the damaged paths have in common says more.
    let unknown = f.damaged.common.is_none();
    let look_at = unknown.then(|| look_at(&Place::End(first.end.clone())));
    Some(Finding::fault(Code::Corrupt, text, look_at))
}

/// A note on the waits of messages.
fn longest_wait(f: &Facts) -> Option<Finding> {
    let longest = Some(f.message_wait_max_ns).filter(|&ns| ns > 0)?;
    let count = |waits: &[Wait]| waits.iter().map(|wait| u128::from(wait.messages())).sum();
    let all: u128 = count(&f.waits);
    let mut shares = (1..=f.waits.len()).map(|classes| &f.waits[..classes]);
    let most = shares.find(|classes| 100 * count(classes) >= 99 * all);
    let bound = most.and_then(|classes| classes.last()?.up_to_ns);
    let most = bound.filter(|&bound| bound < longest);
    let most = most.map_or_else(String::new, |bound| {
        format!("; 99 of 100 waited {} at most", duration(bound))
    });
    let longest = duration(longest);
    let text = format!("the longest wait of any message was {longest}{most}");
    Some(Finding::note(text))
}

/// A note on loss, which is normal on a loaded network.
fn lost(f: &Facts) -> Option<Finding> {
    let (total, places) = counted(f, |rail| rail.lost)?;
    let sent = f
        .rails
        .iter()
        .fold(0, |sum: u64, rail| sum.saturating_add(rail.packets_sent));
    Some(Finding::note(format!(
        "{} lost ({} of all sent): from {places}",
        plural(total, "packet was", "packets were"),
        percent(total, sent)
    )))
}

fn left_behind(f: &Facts) -> Option<Finding> {
    if f.left_behind.is_empty() {
        return None;
    }
    let text = format!(
        "{} ended without MPI_Finalize, as if killed",
        list(f.left_behind.clone())
    );
    Some(Finding::warning(Code::Killed, text, ""))
}

fn protection(f: &Facts) -> Vec<Finding> {
    let (of, all) = (&f.protection, f.processes);
    let rows = [
        (
            of.without_reliability,
            "FI_MARLINE_RELIABILITY=off",
            "what was lost was not sent again",
        ),
        (
            of.without_checksums,
            "FI_MARLINE_CHECKSUM=none",
            "damage was not looked for",
        ),
        (
            of.some_checksums,
            "FI_MARLINE_CHECKSUM_*",
            "some payloads travelled without a checksum",
        ),
        (
            of.faults,
            "FI_MARLINE_FAULTS",
            "packets were broken on purpose",
        ),
    ];
    let set = rows.into_iter().filter(|(count, ..)| *count > 0);
    set.map(|(count, name, effect)| {
        let text = format!("{name} in {count} of {all} processes: {effect}");
        let look_at = format!("the environment of the job: {name}");
        Finding::warning(Code::Unprotected, text, &look_at)
    })
    .collect()
}

/// Warnings that counters of rails give.
const RAIL_WARNINGS: [fn(&Facts) -> Option<Finding>; 4] = [
    |f| {
        let (total, places) = counted(f, |rail| rail.receiver_drops)?;
        let text = format!(
            "{} by the receive buffer of their host: {places}",
            plural(total, "packet was dropped", "packets were dropped")
        );
        Some(Finding::warning(
            Code::KernelLimit,
            text,
            "net.core.rmem_max: `sysctl -w net.core.rmem_max=8388608`",
        ))
    },
    |f| {
        let (total, places) = counted(f, |rail| rail.shrinks)?;
        let text = format!(
            "large packets vanished {}, shorter ones were used: {places}",
            plural(total, "time", "times")
        );
        Some(Finding::warning(
            Code::PathShrank,
            text,
            "the MTU of the switches of these rails",
        ))
    },
    |f| {
        let (total, places) = counted(f, |rail| rail.wrong_version)?;
        let text = format!(
            "{} in another version of the protocol: {places}",
            plural(total, "packet arrived", "packets arrived")
        );
        let look_at = "`marline --version` on all hosts";
        Some(Finding::warning(Code::VersionsDiffer, text, look_at))
    },
    |f| {
        let (total, places) = counted(f, |rail| rail.forged)?;
        let text = format!(
            "{} without the tag of the job's key, and refused: {places}",
            plural(
                total,
                "packet or connection arrived",
                "packets or connections arrived"
            )
        );
        Some(Finding::warning(
            Code::Forged,
            text,
            "the job's key on all hosts, and who else sends to these rails",
        ))
    },
];

#[cfg(test)]
#[path = "findings_test.rs"]
mod tests;
