//! Events of paths, rails and peers as records in a page's rings: time, peer, reason, packets
//! moved, and duration without delivery.

use super::layout::{at, OUTAGES_AT, OUTAGES_MAX, SUSPECTS_AT, SUSPECTS_MAX};
use super::map::Mapped;
use super::ring::{self, RECORD_WORDS, SLOT_WORDS};
use super::words::named;
use crate::platform::fork::Generation;
use crate::platform::sync::Ordering;
use crate::platform::wall_clock::unix_ns;
use marline_rails::DownReason;
use marline_wire::Versions;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

named! {
    /// The kind of an event.
    Kind {
        /// Sent by a later version, or invalid.
        Unknown = 0, "unknown";
        /// A path that was declared down is in use again.
        PathUp = 1, "path-up";
        /// A path became suspect: packets on it may not arrive.
        PathSuspect = 2, "path-suspect";
        /// A suspect path answered.
        PathCleared = 3, "path-cleared";
        /// A path was declared down.
        PathDown = 4, "path-down";
        /// A path was isolated because it damages packets; undamaged packets reinstate it.
        PathIsolated = 5, "path-isolated";
        /// First delivery to the peer since a path was declared down.
        Resumed = 6, "resumed";
        /// A path dropped long packets (black hole) or its connection was silent; it continues with
        /// shorter packets.
        PathShrank = 7, "path-shrank";
        /// A peer was declared dead.
        PeerDead = 8, "peer-dead";
        /// A rail is down: its interface, address or device is gone.
        RailDown = 9, "rail-down";
        /// A rail is up again.
        RailUp = 10, "rail-up";
        /// A standby rail carries because no other rail does.
        StandbyCarries = 11, "standby-carries";
        /// A rail continues at another address of its interface.
        RailMoved = 12, "rail-moved";
        /// A rail waits for its interface or for an address on it.
        RailAwaited = 13, "rail-awaited";
        /// The interface of a waiting rail appeared, with an address.
        RailCame = 14, "rail-came";
        /// The interface of a rail was renamed.
        RailRenamed = 15, "rail-renamed";
        /// A silent path gets another source port or connection.
        PathRerouted = 16, "path-rerouted";
        /// A firewall rejects packets to other hosts.
        RailBarred = 17, "rail-barred";
        /// Peers on one host are silent while an operation here waits for them.
        PeerAwaited = 18, "peer-awaited";
    }
}

named! {
    /// The reason of an event.
    Reason {
        /// No reason.
        None = 0, "none";
        /// Packets were answered or acknowledged.
        Answered = 1, "answered";
        /// Packets were not answered, while packets on another path were.
        Unanswered = 2, "unanswered";
        /// No ack came in time.
        Late = 3, "late";
        /// The rail is down.
        Rail = 4, "rail-down";
        /// The connection broke or could not be made; the detail is the error number.
        Link = 5, "connection-broke";
        /// The rail's queue was full for too long.
        NoRoom = 6, "no-room";
        /// Too many packets arrived damaged.
        Corrupt = 7, "corrupt";
        /// Packets long enough for data do not pass.
        Size = 8, "size";
        /// The other paths are no better.
        NoBetter = 9, "no-better";
        /// Reported by the operating system.
        System = 10, "system";
        /// The peer's host refuses packets to the peer.
        Refused = 11, "refused";
        /// The peer was silent on every path.
        Silent = 12, "silent";
        /// The peer is heard, but packets to it do not arrive.
        Unreachable = 13, "unreachable";
        /// A packet was lost on a rail without software reliability.
        Lost = 14, "lost";
        /// The peer's rail has another address.
        Moved = 15, "moved";
        /// The peer closed the connection.
        Closed = 16, "connection-closed";
        /// The peer's host refused the connection: no process listens there.
        NobodyListens = 17, "connection-refused";
        /// The connection, or the attempt to make it, timed out.
        NobodyAnswers = 18, "connection-unanswered";
        /// An adapter ended a request on the connection with an error.
        Completion = 19, "completion-error";
        /// The process is gone: its connections ended, or no process on this host has its name.
        Gone = 20, "process-gone";
        /// Settings that both sides must share differ.
        Settings = 21, "settings-differ";
        /// No rail of this process reaches a rail of the peer.
        NoCommonRail = 22, "no-common-rail";
        /// No common version of the protocol; the details are the versions here and there, the
        /// oldest in the second byte, the newest in the first.
        Versions = 23, "versions-differ";
    }
}

/// Low bits of a link-end word that hold the error number; the bits above hold the reason.
const NUMBER_BITS: u32 = 24;

/// Adapter status codes of failed requests (`ibv_wc_status`) that concern connections.
const COMPLETIONS: [(u32, &str); 9] = [
    (1, "local length error"),
    (4, "local protection error"),
    (5, "flushed"),
    (9, "remote invalid request"),
    (10, "remote access error"),
    (11, "remote operation error"),
    (12, "transport retry counter exceeded"),
    (13, "receiver-not-ready retry counter exceeded"),
    (19, "fatal error"),
];

/// Describes a software reliability that differs between both sides. `ours`: this side has it on.
/// `here` and `there` name the sides.
pub(crate) fn differing(ours: bool, here: &str, there: &str) -> String {
    let [our_value, their_value] = match ours {
        true => ["on", "off"],
        false => ["off", "on"],
    };
    format!(
        "FI_MARLINE_RELIABILITY={our_value} {here} and {their_value} {there}: set it the same on \
         all hosts"
    )
}

/// Describes the error of a connection that broke. Some numbers are a rail's own findings, which
/// the text of the system does not fit.
fn broken(errno: i32) -> String {
    match errno {
        libc::EBADMSG => "bytes arrived that are no frame".to_owned(),
        libc::EFAULT => "a write names memory that is not registered here".to_owned(),
        libc::EPROTONOSUPPORT => "the two ends speak different versions".to_owned(),
        libc::EKEYREJECTED => "the keys of the two ends differ".to_owned(),
        _ => std::io::Error::from_raw_os_error(errno).to_string(),
    }
}

/// Describes ranges of versions of both sides without a common one, or whose addresses did not show
/// it: `here` is the side of `ours`.
pub(crate) fn differing_versions((ours, here): (Versions, &str), theirs: Versions) -> String {
    let both = format!("version {theirs} of the protocol is spoken there, version {ours} {here}");
    match ours.agreed(theirs) {
        None => format!("{both}: both need a library with a common one (marline --version)"),
        Some(_) => format!("{both}, but the address of one was altered on its way"),
    }
}

/// Encodes the versions of both sides as an event's details.
pub(crate) fn versions_in(ours: Versions, theirs: Versions) -> (u32, u32) {
    let word = |versions: Versions| u32::from(versions.oldest) << 8 | u32::from(versions.newest);
    (word(ours), word(theirs))
}

/// Decodes a detail of an event with versions.
pub(crate) fn versions_of(detail: u32) -> Versions {
    let [newest, oldest, ..] = detail.to_le_bytes();
    Versions { oldest, newest }
}

impl Reason {
    /// Encodes the end of a link as a link-end word.
    pub(crate) fn end_of_link(why: DownReason) -> u32 {
        let (reason, number) = match why {
            DownReason::Refused => (Reason::NobodyListens, 0),
            DownReason::Unanswered => (Reason::NobodyAnswers, 0),
            DownReason::Closed => (Reason::Closed, 0),
            DownReason::Broken(errno) => (Reason::Link, errno),
            DownReason::Completion(status) => (Reason::Completion, status),
        };
        (reason as u32) << NUMBER_BITS | (number.unsigned_abs() & ((1 << NUMBER_BITS) - 1))
    }

    /// Decodes a link-end word into reason and number.
    pub(crate) fn of_end(word: u32) -> (Reason, u32) {
        let reason = Reason::from_number((word >> NUMBER_BITS) as u8).unwrap_or_default();
        (reason, word & ((1 << NUMBER_BITS) - 1))
    }

    /// Describes the end of a connection; `None` for other reasons. `number` is the error number or
    /// the adapter's status ([`Event::detail`]).
    pub fn of_connection(self, number: u32) -> Option<String> {
        let status = COMPLETIONS.iter().find(|(status, _)| *status == number);
        Some(match (self, number) {
            (Reason::Link, 0) => "its connection broke".to_owned(),
            (Reason::Link, _) => format!("its connection broke: {}", broken(number as i32)),
            (Reason::Closed, _) => "its peer closed the connection".to_owned(),
            (Reason::NobodyListens, _) => {
                "its connection was refused: nobody listens there".to_owned()
            }
            (Reason::NobodyAnswers, _) => "nobody answers on its connection".to_owned(),
            (Reason::Completion, _) => match status {
                Some((_, what)) => format!("completion error {number}: {what}"),
                None => format!("completion error {number}"),
            },
            _ => return None,
        })
    }
}

/// Suspicions of one path at most this far apart are merged into one event.
const MERGED_NS: u64 = 1_000_000_000;

/// Stands for no rail.
pub const NO_RAIL: u8 = u8::MAX;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since 1970 of the first occurrence.
    pub unix_ns: u64,
    /// Number of occurrences; suspicions of one path are merged ([`Event::lasted_ms`]).
    pub times: u32,
    /// The kind of the event.
    pub kind: Kind,
    /// Reason of the event.
    pub reason: Reason,
    /// Our rail, or [`NO_RAIL`].
    pub rail: u8,
    /// The peer's rail, or [`NO_RAIL`].
    pub peer_rail: u8,
    /// Endpoint number of the peer; 0: no peer.
    pub peer: u64,
    /// Packets moved to other paths.
    pub moved: u64,
    /// Longest time without delivery, in nanoseconds; 0: nothing was waiting.
    pub gap_ns: u64,
    /// Details by kind:
    /// - a path that shrank: longest packet in bytes, before and after;
    /// - the end of a connection: error number or adapter status;
    /// - a rail that is down or waiting: error number;
    /// - a rail that moved or appeared: IPv4 address before and after ([`Event::address`]);
    /// - a suspect path: milliseconds from the first to the last suspicion;
    /// - a peer refused for its settings: 1 if the setting is on here and off there;
    /// - a peer without a common rail: kinds of rails here and there (bit n: kind number n).
    pub detail: (u32, u32),
}

impl Default for Event {
    fn default() -> Event {
        Event {
            unix_ns: 0,
            times: 1,
            kind: Kind::Unknown,
            reason: Reason::None,
            rail: NO_RAIL,
            peer_rail: NO_RAIL,
            peer: 0,
            moved: 0,
            gap_ns: 0,
            detail: (0, 0),
        }
    }
}

impl Event {
    fn record(&self) -> [u64; RECORD_WORDS] {
        let what = [
            self.kind as u8,
            self.reason as u8,
            self.rail,
            self.peer_rail,
        ];
        let (from, to) = self.detail;
        [
            self.unix_ns,
            u64::from(u32::from_le_bytes(what)) | u64::from(self.times.saturating_sub(1)) << 32,
            self.peer,
            self.moved,
            self.gap_ns,
            u64::from(from) | u64::from(to) << 32,
        ]
    }

    pub(super) fn from_record(record: &[u64; RECORD_WORDS]) -> Event {
        let [unix_ns, what, peer, moved, gap_ns, detail] = *record;
        let [kind, reason, rail, peer_rail] = (what as u32).to_le_bytes();
        Event {
            unix_ns,
            times: ((what >> 32) as u32).saturating_add(1),
            kind: Kind::from_number(kind).unwrap_or_default(),
            reason: Reason::from_number(reason).unwrap_or_default(),
            rail,
            peer_rail,
            peer,
            moved,
            gap_ns,
            detail: (detail as u32, (detail >> 32) as u32),
        }
    }

    /// Adds the address at which a rail continues. An IPv6 address takes fields that events of
    /// rails do not use.
    pub(crate) fn at(self, address: IpAddr) -> Event {
        match address {
            IpAddr::V4(ip) => Event {
                detail: (self.detail.0, ip.to_bits()),
                ..self
            },
            IpAddr::V6(ip) => Event {
                moved: (ip.to_bits() >> 64) as u64,
                gap_ns: ip.to_bits() as u64,
                ..self
            },
        }
    }

    /// The address at which a rail continues.
    pub fn address(&self) -> Option<IpAddr> {
        let to = (self.detail.1, self.moved, self.gap_ns);
        match (self.kind, to) {
            (Kind::RailMoved | Kind::RailCame | Kind::RailBarred, (0, high, low)) if high != 0 => {
                let bits = u128::from(high) << 64 | u128::from(low);
                Some(Ipv6Addr::from_bits(bits).into())
            }
            (Kind::RailMoved | Kind::RailCame | Kind::RailBarred, (ip @ 1.., ..)) => {
                Some(Ipv4Addr::from_bits(ip).into())
            }
            _ => None,
        }
    }

    /// Milliseconds from the first occurrence to the last.
    pub fn lasted_ms(&self) -> u32 {
        match self.is_suspect() {
            true => self.detail.0,
            false => 0,
        }
    }

    /// Merges a later suspicion of the same path if both are close enough to count as one event.
    fn merged(self, later: &Event) -> Option<Event> {
        let path = |event: &Event| (event.kind, event.peer, event.rail, event.peer_rail);
        let last = self.unix_ns + u64::from(self.lasted_ms()) * 1_000_000;
        let close = later.unix_ns.saturating_sub(last) < MERGED_NS;
        let lasted_ms = later.unix_ns.saturating_sub(self.unix_ns) / 1_000_000;
        (self.is_suspect() && close && path(&self) == path(later)).then(|| Event {
            times: self.times.saturating_add(1),
            gap_ns: self.gap_ns.max(later.gap_ns),
            detail: (u32::try_from(lasted_ms).unwrap_or(u32::MAX), 0),
            ..self
        })
    }

    /// True for mere suspicions. They have a ring of their own, since a busy machine causes many
    /// and they must not displace important events.
    fn is_suspect(&self) -> bool {
        let kinds = [Kind::PathSuspect, Kind::PathCleared, Kind::PathRerouted];
        kinds.contains(&self.kind)
    }
}

/// The events of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Recorded events, oldest first.
    pub list: Vec<Event>,
    /// Number of older events that were overwritten.
    pub missing: u64,
}

impl Events {
    /// Reads both rings; `load` returns the words at an index.
    pub(super) fn read<E>(
        mut load: impl FnMut(usize) -> Result<[u64; SLOT_WORDS], E>,
    ) -> Result<Events, E> {
        let mut events = Events::default();
        let rings = [
            (at::OUTAGES, OUTAGES_AT, OUTAGES_MAX),
            (at::SUSPECTS, SUSPECTS_AT, SUSPECTS_MAX),
        ];
        for (count_at, ring_at, slots) in rings {
            let count = load(count_at)?[0];
            let slot = |n: u64| load(ring_at + n as usize * SLOT_WORDS);
            let (records, missing) = ring::take(count, slots as u64, slot)?;
            events.list.extend(records.iter().map(Event::from_record));
            events.missing = events.missing.saturating_add(missing);
        }
        events.list.sort_by_key(|event| event.unix_ns);
        Ok(events)
    }
}

/// Writes events to a page as they happen.
#[derive(Debug)]
pub(crate) struct Recorder {
    map: Mapped,
    made: Generation,
}

impl Recorder {
    pub(super) fn new(map: Mapped) -> Recorder {
        Recorder {
            map,
            made: Generation::current(),
        }
    }

    /// Records an event with the current time.
    #[cold]
    pub(crate) fn record(&self, event: Event) {
        if self.made.is_forked() {
            return; // a forked child shares the memory with its parent, which owns the page
        }
        let unix_ns = unix_ns();
        let event = Event { unix_ns, ..event };
        let (count, ring_at, slots) = match event.is_suspect() {
            false => (at::OUTAGES, OUTAGES_AT, OUTAGES_MAX),
            true => (at::SUSPECTS, SUSPECTS_AT, SUSPECTS_MAX),
        };
        let words = self.map.words();
        let ring = &words[ring_at..ring_at + slots * SLOT_WORDS];
        // A path that is suspected repeatedly must not displace events of other paths.
        let merged = |(number, record): (u64, _)| {
            let merged = Event::from_record(&record).merged(&event)?;
            Some((number, merged))
        };
        let written = words[count].load(Ordering::Relaxed);
        match ring::newest(written, ring).find_map(merged) {
            Some((number, merged)) => ring::write(ring, number, &merged.record()),
            None => ring::put(&words[count], ring, &event.record()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_lead_back() {
        for (&kind, &reason) in Kind::ALL.iter().zip(Reason::ALL.iter().cycle()) {
            let event = Event {
                unix_ns: 7,
                times: 3,
                kind,
                reason,
                rail: 3,
                peer_rail: NO_RAIL,
                peer: u64::MAX,
                moved: 212,
                gap_ns: 1_900_000,
                detail: (9_000, 1_472),
            };
            assert_eq!(Event::from_record(&event.record()), event);
        }
        let unknown = [0, 0xffff_c8c8, 0, 0, 0, 0];
        let read = Event::from_record(&unknown);
        assert_eq!((read.kind, read.reason), (Kind::Unknown, Reason::None));
    }

    #[test]
    fn a_rail_that_continues_has_its_address() {
        let moved = |kind| Event {
            kind,
            ..Event::default()
        };
        for text in ["10.1.0.9", "fd00::9", "fd00::"] {
            let ip: IpAddr = text.parse().unwrap();
            let event = moved(Kind::RailCame).at(ip);
            assert_eq!(Event::from_record(&event.record()).address(), Some(ip));
            assert_eq!(moved(Kind::RailDown).at(ip).address(), None);
        }
        assert_eq!(moved(Kind::RailMoved).address(), None);
    }

    #[test]
    fn suspicions_of_one_path_close_in_time_are_one_event() {
        let doubt = |ms: u64, gap_ns| Event {
            unix_ns: ms * 1_000_000,
            kind: Kind::PathCleared,
            rail: 1,
            peer_rail: 1,
            gap_ns,
            ..Event::default()
        };
        let first = doubt(10, 5);
        let two = first.merged(&doubt(900, 7)).expect("close");
        let three = two.merged(&doubt(1_800, 6)).expect("close to the last");
        let got = (three.unix_ns, three.times, three.lasted_ms(), three.gap_ns);
        assert_eq!(got, (10_000_000, 3, 1_790, 7));
        assert_eq!(three.merged(&doubt(2_800, 0)), None, "too late");
        let other = Event { rail: 0, ..first };
        assert_eq!(first.merged(&other), None, "another path");
        let kind = Kind::PathSuspect;
        assert_eq!(first.merged(&Event { kind, ..first }), None);
        let outage = Event {
            kind: Kind::PathDown,
            ..first
        };
        assert_eq!(outage.merged(&outage), None, "outages are told one by one");
    }
}
