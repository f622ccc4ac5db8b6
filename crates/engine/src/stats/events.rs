//! Events of paths, rails and peers, as records of the rings of a page: when, to whom, why, what
//! was moved, and how long nothing was delivered.

use super::layout::{at, DOUBTS_AT, DOUBTS_MAX, OUTAGES_AT, OUTAGES_MAX};
use super::map::Mapped;
use super::ring::{self, RECORD_WORDS, SLOT_WORDS};
use crate::platform::fork::Generation;
use crate::platform::sync::Ordering;
use crate::platform::wall_clock::unix_ns;
use marline_rails::DownReason;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

macro_rules! named {
    ($(#[doc = $about:literal])+ $type:ident {
        $($(#[doc = $doc:literal])+ $variant:ident = $number:literal, $name:literal;)*
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $type { #[default] $($(#[doc = $doc])+ $variant = $number,)* }

        impl $type {
            /// All of them.
            pub const ALL: &'static [$type] = &[$($type::$variant),*];

            /// Its name in JSON, which stays as it is.
            pub fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }

            /// From a record's byte; the first for numbers of no sense.
            pub fn from_number(number: u8) -> $type {
                Self::ALL.iter().copied().find(|&k| k as u8 == number).unwrap_or_default()
            }
        }
    };
}

named! {
    /// The kind of an event.
    Kind {
        /// Of a later version, or nonsense.
        Unknown = 0, "unknown";
        /// A path that had been given up is in use again.
        PathUp = 1, "path-up";
        /// It is in doubt that what is sent on a path arrives.
        PathSuspect = 2, "path-suspect";
        /// A path in doubt answers.
        PathCleared = 3, "path-cleared";
        /// A path was given up.
        PathDown = 4, "path-down";
        /// A path was given up, and has to prove itself by undamaged packets.
        PathQuarantined = 5, "path-quarantined";
        /// Something of ours arrived at the peer for the first time since a path was given up.
        Resumed = 6, "resumed";
        /// A path lost its long packets, or its connection was silent: it goes on with others.
        PathShrank = 7, "path-shrank";
        /// A peer was given up.
        PeerDead = 8, "peer-dead";
        /// A rail does not work: its interface, its address or its device is gone.
        RailDown = 9, "rail-down";
        /// It works again.
        RailUp = 10, "rail-up";
        /// A rail that stood by carries, because no other does.
        StoodIn = 11, "stood-in";
        /// A rail goes on at another address of its interface.
        RailMoved = 12, "rail-moved";
        /// A rail waits for its interface, or for an address of it.
        RailAwaited = 13, "rail-awaited";
        /// The interface of a rail that waited for it is there, and has an address.
        RailCame = 14, "rail-came";
        /// The interface of a rail has another name.
        RailRenamed = 15, "rail-renamed";
        /// Another source port or connection is tried for a path that is silent.
        PathRerouted = 16, "path-rerouted";
        /// Somebody on the way refuses packets to others: a firewall.
        RailBarred = 17, "rail-barred";
        /// Peers of one host are silent while something here waits for them.
        PeerAwaited = 18, "peer-awaited";
    }
}

named! {
    /// Why it happened.
    Reason {
        /// Nothing is to be said.
        None = 0, "none";
        /// Packets were answered, or acknowledged.
        Answered = 1, "answered";
        /// Packets were not answered, while others were on another path.
        Unanswered = 2, "unanswered";
        /// No acknowledgement came in time.
        Late = 3, "late";
        /// The rail is down.
        Rail = 4, "rail-down";
        /// The connection broke, or could not be made, with an error number.
        Link = 5, "connection-broke";
        /// The rail had no room for long.
        NoRoom = 6, "no-room";
        /// Too many packets arrived damaged.
        Corrupt = 7, "corrupt";
        /// No packets pass that are long enough for data.
        Size = 8, "size";
        /// The other paths are as bad.
        NoBetter = 9, "no-better";
        /// The system says so.
        System = 10, "system";
        /// Its host refuses what is sent to it.
        Refused = 11, "refused";
        /// It was silent on every path.
        Silent = 12, "silent";
        /// It is heard, but nothing arrives at it.
        Deaf = 13, "deaf";
        /// Something was lost on a rail without software reliability.
        Lost = 14, "lost";
        /// The peer's rail has another address.
        Moved = 15, "moved";
        /// The peer closed the connection.
        Closed = 16, "connection-closed";
        /// The peer's host says that nobody listens there.
        NobodyListens = 17, "connection-refused";
        /// Nobody answered on the connection, or when it was to be made.
        NobodyAnswers = 18, "connection-unanswered";
        /// An adapter ended a request of the connection with an error.
        Completion = 19, "completion-error";
        /// The process is gone: its connections ended, or nobody on this host has its name.
        Gone = 20, "process-gone";
        /// Settings that both sides must share differ.
        Settings = 21, "settings-differ";
        /// No rail of the process reaches any of the peer's.
        NoCommonRail = 22, "no-common-rail";
    }
}

/// Bits of the word for the end of a connection that are the number, the others the reason.
const NUMBER_BITS: u32 = 24;

/// The words of adapters for a request that failed (`ibv_wc_status`), as far as it befalls
/// connections.
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

/// Words about a setting that both sides must share and that differs: `ours`, whether it is on
/// `here`, and off `there`; or the other way round.
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

impl Reason {
    /// The end of a connection as a node keeps it.
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

    /// The reason and the number of such a word.
    pub(crate) fn of_end(word: u32) -> (Reason, u32) {
        let reason = Reason::from_number((word >> NUMBER_BITS) as u8);
        (reason, word & ((1 << NUMBER_BITS) - 1))
    }

    /// Words about the end of a connection; `None`: it is the reason of something else. `number`:
    /// the error, or the status of the adapter ([`Event::detail`]).
    pub fn of_connection(self, number: u32) -> Option<String> {
        let status = COMPLETIONS.iter().find(|(status, _)| *status == number);
        Some(match (self, number) {
            (Reason::Link, 0) => "its connection broke".to_owned(),
            (Reason::Link, _) => {
                let error = std::io::Error::from_raw_os_error(number as i32);
                format!("its connection broke: {error}")
            }
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

/// Doubts of one path are one event if they are no further apart than this.
const MERGED_NS: u64 = 1_000_000_000;

/// No rail.
pub const NO_RAIL: u8 = u8::MAX;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since 1970, of the first time.
    pub unix_ns: u64,
    /// So often it happened: doubts of one path are one event ([`Event::lasted_ms`]).
    pub times: u32,
    /// The kind of it.
    pub kind: Kind,
    /// Why.
    pub reason: Reason,
    /// Our rail, or [`NO_RAIL`].
    pub rail: u8,
    /// The peer's rail, or [`NO_RAIL`].
    pub peer_rail: u8,
    /// Endpoint number of the peer; 0: it is about no peer.
    pub peer: u64,
    /// Packets that were moved to other paths.
    pub moved: u64,
    /// How long nothing was delivered, in nanoseconds, at most; 0: nothing waited.
    pub gap_ns: u64,
    /// Of a path that shrank the longest packets before and now, in bytes; of one whose connection
    /// ended the error number or the adapter's status; of a rail that is down the error number, and
    /// of one that is waited for; of one that moved or came its addresses before and now, where
    /// these are of IPv4 ([`Event::address`]); of doubts the milliseconds from the first to the
    /// last; of a peer refused for its settings 1 where the setting is on here, and off there;
    /// of one out of reach the kinds of rails here and there (bit n: number n).
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
            kind: Kind::from_number(kind),
            reason: Reason::from_number(reason),
            rail,
            peer_rail,
            peer,
            moved,
            gap_ns,
            detail: (detail as u32, (detail >> 32) as u32),
        }
    }

    /// This event of a rail that goes on at an address: one of IPv6 has the place of what else is
    /// not known of a rail.
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

    /// The address at which a rail goes on.
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

    /// Milliseconds from the first time to the last.
    pub fn lasted_ms(&self) -> u32 {
        match self.is_doubt() {
            true => self.detail.0,
            false => 0,
        }
    }

    /// This doubt with a later one of the same path, if they are so close that they are one event.
    fn merged(self, later: &Event) -> Option<Event> {
        let path = |event: &Event| (event.kind, event.peer, event.rail, event.peer_rail);
        let last = self.unix_ns + u64::from(self.lasted_ms()) * 1_000_000;
        let close = later.unix_ns.saturating_sub(last) < MERGED_NS;
        let lasted_ms = later.unix_ns.saturating_sub(self.unix_ns) / 1_000_000;
        (self.is_doubt() && close && path(&self) == path(later)).then(|| Event {
            times: self.times.saturating_add(1),
            gap_ns: self.gap_ns.max(later.gap_ns),
            detail: (u32::try_from(lasted_ms).unwrap_or(u32::MAX), 0),
            ..self
        })
    }

    /// Mere doubts have a ring of their own: a busy machine makes many, and they are not to push
    /// out what matters.
    fn is_doubt(&self) -> bool {
        let kinds = [Kind::PathSuspect, Kind::PathCleared, Kind::PathRerouted];
        kinds.contains(&self.kind)
    }
}

/// The events of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Those that are there, oldest first.
    pub list: Vec<Event>,
    /// Older ones that were written over.
    pub missing: u64,
}

impl Events {
    /// Reads both rings; `load` gives the words from a place on.
    pub(super) fn read<E>(
        mut load: impl FnMut(usize) -> Result<[u64; SLOT_WORDS], E>,
    ) -> Result<Events, E> {
        let mut events = Events::default();
        let rings = [
            (at::OUTAGES, OUTAGES_AT, OUTAGES_MAX),
            (at::DOUBTS, DOUBTS_AT, DOUBTS_MAX),
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

/// Writes events to a page, each as it happens.
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

    /// One event; its time is now.
    #[cold]
    pub(crate) fn record(&self, event: Event) {
        if self.made.is_forked() {
            return; // the memory is shared with the parent, whose page it is
        }
        let unix_ns = unix_ns();
        let event = Event { unix_ns, ..event };
        let (count, ring_at, slots) = match event.is_doubt() {
            false => (at::OUTAGES, OUTAGES_AT, OUTAGES_MAX),
            true => (at::DOUBTS, DOUBTS_AT, DOUBTS_MAX),
        };
        let words = self.map.words();
        let ring = &words[ring_at..ring_at + slots * SLOT_WORDS];
        // A path in doubt again and again is not to push out what is known of others.
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
        assert_eq!(Kind::from_number(200), Kind::Unknown);
    }

    #[test]
    fn a_rail_that_goes_on_has_its_address() {
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
    fn doubts_of_one_path_are_one_event_while_they_are_close() {
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
        let told = (three.unix_ns, three.times, three.lasted_ms(), three.gap_ns);
        assert_eq!(told, (10_000_000, 3, 1_790, 7));
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
