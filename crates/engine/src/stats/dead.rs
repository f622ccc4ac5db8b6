//! Dead peers of a job, from the pages of its processes: one entry per dead process, the root cause
//! first.

use super::events::{differing, differing_versions, versions_of, Event, Kind, Reason};
use super::outages::by_endpoint;
use super::rows::{JobPage, PeerRow, PeerState};
use marline_wire::RailKind;
use std::collections::HashMap;

/// A process that was declared dead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadPeer {
    /// Endpoint number of the process; of several, the one declared dead first.
    pub endpoint: u64,
    /// An address of the process.
    pub address: String,
    /// Rank of the process, if its own page is among the pages and has it.
    pub rank: Option<u32>,
    /// Host of the process, if its own page is among the pages.
    pub host: Option<String>,
    /// Number of processes that made the declaration.
    pub named_by: usize,
    /// True if the process is gone or its host refused packets.
    pub gone: bool,
    /// Reason of the first declaration.
    pub reason: Reason,
    /// Details of both sides if their settings or their rails are the reason.
    pub detail: String,
    /// Time of the first declaration in nanoseconds since 1970; 0: no event has it.
    pub from_unix_ns: u64,
    /// True if the process had declared another peer dead before, which most likely ended it.
    pub follows: bool,
}

/// One process's declaration that another is dead.
struct Named<'a> {
    by: &'a JobPage,
    row: &'a PeerRow,
    /// Event of the declaration, if the page still has it.
    event: Option<&'a Event>,
}

/// The dead peers in these pages.
pub(super) fn dead_peers(pages: &[JobPage]) -> Vec<DeadPeer> {
    let by_endpoint = by_endpoint(pages);
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut dead: Vec<(DeadPeer, Vec<String>)> = Vec::new();
    for named in named(pages) {
        let own = by_endpoint.get(&named.row.endpoint).copied();
        let at = *places.entry(place(&named, own)).or_insert_with(|| {
            dead.push(Default::default());
            dead.len() - 1
        });
        let (peer, by) = &mut dead[at];
        by.push(process(named.by));
        let is_gone = |e: &Event| matches!(e.reason, Reason::Gone | Reason::Refused);
        peer.gone |= named.event.is_some_and(is_gone);
        if by.len() == 1 || is_earlier(named.event, peer) {
            take(peer, &named, own);
        }
    }
    let mut dead: Vec<DeadPeer> = dead.into_iter().map(counted).collect();
    // A killed or aborted process declared its cause before its own end.
    dead.sort_by_key(|d| (d.follows, d.from_unix_ns, std::cmp::Reverse(d.named_by)));
    dead
}

/// All declarations that a peer is dead.
fn named(pages: &[JobPage]) -> impl Iterator<Item = Named<'_>> {
    pages.iter().flat_map(|by| {
        by.peers.iter().filter_map(move |row| {
            // After an endpoint closes, the rows of its dead peers say closed: look at the events,
            // too.
            let event = deaths(by).find(|event| event.peer == row.endpoint);
            let dead = row.state == PeerState::Dead || event.is_some();
            dead.then_some(Named { by, row, event })
        })
    })
}

fn deaths(page: &JobPage) -> impl Iterator<Item = &Event> {
    let list = page.events.list.iter();
    list.filter(|event| event.kind == Kind::PeerDead)
}

/// Identifies a process: by its own page, or else by its address.
fn place(named: &Named<'_>, own: Option<&JobPage>) -> String {
    match own {
        Some(page) => process(page),
        None if named.row.address.is_empty() => format!("{:016x}", named.row.endpoint),
        None => named.row.address.clone(),
    }
}

/// Identifies the process of a page; pages without a process, as in tests, are distinct.
fn process(page: &JobPage) -> String {
    match page.process_key() {
        Some(key) => format!("{key:?}"),
        None => format!("page of {:x} {:p}", page.endpoint(), page),
    }
}

fn is_earlier(event: Option<&Event>, than: &DeadPeer) -> bool {
    event.is_some_and(|e| than.from_unix_ns == 0 || e.unix_ns < than.from_unix_ns)
}

/// Takes over a declaration that is earlier than the others.
fn take(peer: &mut DeadPeer, named: &Named<'_>, own: Option<&JobPage>) {
    peer.endpoint = named.row.endpoint;
    peer.address.clone_from(&named.row.address);
    peer.rank = own.and_then(|page| page.rank);
    peer.host = own.map(|page| page.host.clone());
    let Some(event) = named.event else { return };
    (peer.reason, peer.from_unix_ns) = (event.reason, event.unix_ns);
    let before = |other: &Event| other.unix_ns < event.unix_ns;
    peer.follows = own.is_some_and(|page| deaths(page).any(before));
    peer.detail = match event.reason {
        Reason::Settings => differing(event.detail.0 == 1, &speaker(named.by), "there"),
        Reason::Versions => {
            let [ours, theirs] = [event.detail.0, event.detail.1].map(versions_of);
            differing_versions((ours, &speaker(named.by)), theirs)
        }
        Reason::NoCommonRail => kinds_of_both(named.by, event.detail),
        _ => String::new(),
    };
}

fn counted((mut peer, mut by): (DeadPeer, Vec<String>)) -> DeadPeer {
    by.sort();
    by.dedup();
    peer.named_by = by.len();
    peer
}

/// Text for the place of a declaring process.
fn speaker(page: &JobPage) -> String {
    match page.rank {
        Some(rank) => format!("at rank {rank} on {}", page.host),
        None if page.host.is_empty() => "here".to_owned(),
        None => format!("on {}", page.host),
    }
}

/// Text for the kinds of rails of a process and of a peer that cannot reach each other.
fn kinds_of_both(by: &JobPage, (ours, theirs): (u32, u32)) -> String {
    let what = match ours & theirs {
        0 => "no common kind of rail",
        _ => "no way between rails",
    };
    format!(
        "{what}: {} {} and {} there (FI_MARLINE_RAILS)",
        list_kinds(ours),
        speaker(by),
        list_kinds(theirs)
    )
}

/// Text for kinds of rails, from a mask of their numbers.
fn list_kinds(mask: u32) -> String {
    let has = |kind: &&RailKind| mask >> **kind as u32 & 1 == 1;
    let kinds = RailKind::BY_REACH.iter().filter(has);
    let names: Vec<_> = kinds.map(|kind| kind.full_name()).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

impl DeadPeer {
    /// Name for display.
    pub fn name(&self) -> String {
        let name = match self.rank {
            Some(rank) => format!("rank {rank}"),
            None => format!("peer {:016x}", self.endpoint),
        };
        match self.address.is_empty() {
            true => name,
            false => format!("{name} ({})", self.address),
        }
    }

    /// Reason for display.
    pub fn why(&self) -> &str {
        match self.reason {
            _ if self.is_refused() => &self.detail,
            Reason::Gone => "its process is gone",
            Reason::Refused => "its host refuses what is sent to it",
            Reason::Lost => "something was lost that nobody can send it again",
            Reason::Unreachable => "it was heard, but nothing that was sent to it arrived",
            _ => "it answered on no rail",
        }
    }

    /// True if the peer was refused at first contact; it may be alive.
    pub fn is_refused(&self) -> bool {
        let refusals = [Reason::Settings, Reason::NoCommonRail, Reason::Versions];
        refusals.contains(&self.reason)
    }
}

#[cfg(test)]
#[path = "dead_test.rs"]
mod tests;
