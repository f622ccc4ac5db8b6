//! An event with its page, as words and as data.

use super::data;
use super::jobs::Job;
use crate::run::stats_dir::process;
use marline_engine::stats::events::{Event, Kind, Reason, NO_RAIL};
use marline_engine::stats::outages::{by_endpoint, format_gap, rail_name};
use marline_engine::stats::rows::JobPage;
use marline_engine::wall_clock::LocalTime;
use std::net::Ipv4Addr;

/// An event and its page.
pub struct Shown<'a> {
    /// The page.
    pub page: &'a JobPage,
    /// The event.
    pub event: &'a Event,
    /// The page of the event's peer.
    peer: Option<&'a JobPage>,
}

/// The events of a job, oldest first.
pub fn shown(job: &Job) -> Vec<Shown<'_>> {
    let pages = || job.pages.iter().map(|(_, page)| page);
    let by_endpoint = by_endpoint(pages());
    let mut all: Vec<Shown<'_>> = Vec::new();
    for page in pages() {
        all.extend(page.events.list.iter().map(|event| Shown {
            page,
            event,
            peer: by_endpoint.get(&event.peer).copied(),
        }));
    }
    all.sort_by_key(|shown| shown.event.unix_ns);
    all
}

/// The reason in words. `number`: an errno, if any.
fn because(reason: Reason, number: u32) -> String {
    if let Some(text) = reason.of_connection(number) {
        return text;
    }
    let text = match reason {
        Reason::None
        | Reason::Link
        | Reason::Closed
        | Reason::NobodyListens
        | Reason::NobodyAnswers
        | Reason::Completion => "for no reason that is known",
        Reason::Answered => "it answers",
        Reason::Unanswered => "unanswered, while another path was answered",
        Reason::Late => "acknowledgements are late",
        Reason::Rail => "its rail is down",
        Reason::NoRoom => "its queue did not move",
        Reason::Corrupt => "damaged packets",
        Reason::Size => "no packets pass that are long enough for data",
        Reason::NoBetter => "no other is better",
        Reason::System => "so says the system",
        Reason::Gone => "its process is gone",
        Reason::Refused => "its host refuses what is sent to it",
        Reason::Silent => "silent on every path",
        Reason::Unreachable => "it is heard, but nothing arrives at it",
        Reason::Moved => "the peer's rail has another address",
        Reason::Lost => "something was lost where nobody can send it again",
        Reason::Settings => "FI_MARLINE_RELIABILITY differs: set it the same on all hosts",
        Reason::Versions => "no common version of the protocol (marline --version)",
        Reason::NoCommonRail => "no rail here reaches any of its rails (FI_MARLINE_RAILS)",
    };
    text.to_owned()
}

impl Shown<'_> {
    /// `2026-11-26 14:10:26.123456 rank 1 on h1: … [MARLINE-E203]`.
    pub fn line(&self) -> String {
        let when = LocalTime::of(self.event.unix_ns);
        let micros = self.event.unix_ns / 1_000 % 1_000_000;
        let (day, clock) = (when.day(), when.clock());
        let text = self.event.code().mark(&self.text());
        format!("{day} {clock}.{micros:06} {text}\n")
    }

    /// The process and the event, in words.
    pub fn text(&self) -> String {
        format!("{}: {}", process(self.page), self.what())
    }

    fn what(&self) -> String {
        let event = self.event;
        let rail = rail_name(self.page, event.rail);
        let why = because(event.reason, event.detail.0);
        let path = || format!("path {rail} to {}", self.whom());
        let gap = format_gap(event.gap_ns);
        match event.kind {
            Kind::Unknown => "something that this version does not know".to_owned(),
            Kind::PathUp => format!("{} is up again: {why}", path()),
            Kind::PathSuspect => format!("{} is suspect{}: {why}", path(), self.times()),
            Kind::PathCleared if event.gap_ns == 0 => {
                format!("{} is cleared{}: {why}", path(), self.times())
            }
            Kind::PathCleared => {
                format!(
                    "{} is cleared{}: {why}; nothing was delivered for {gap}",
                    path(),
                    self.times()
                )
            }
            Kind::PathDown => {
                format!("{} is down: {why}; {} packets moved", path(), event.moved)
            }
            Kind::PathIsolated => {
                let moved = event.moved;
                format!("{} is isolated: {why}; {moved} packets moved", path())
            }
            Kind::Resumed => format!(
                "data arrives at {} again, by {rail}: nothing was delivered for {gap}",
                self.peer_name()
            ),
            Kind::PathRerouted => format!(
                "{} is tried by another source port or connection{}: {why}",
                path(),
                self.times()
            ),
            Kind::PathShrank => self.shrank(&path()),
            Kind::PeerDead => self.ended(&why, &gap),
            Kind::PeerAwaited => format!("waits for {}: {why}, for {gap}", self.awaited()),
            Kind::RailDown => format!("rail {rail} is down: {}", errno(event.detail.0)),
            Kind::RailUp => format!("rail {rail} is up again"),
            Kind::RailMoved => match event.detail.0 {
                0 => format!("rail {rail} goes on at {}", self.address()),
                from => {
                    let from = Ipv4Addr::from_bits(from);
                    format!(
                        "rail {rail} goes on at {}; it was at {from}",
                        self.address()
                    )
                }
            },
            Kind::RailAwaited => {
                format!("rail {rail} is waited for: {}", errno(event.detail.0))
            }
            Kind::RailRenamed => format!("rail {rail} had another name before, as its interface"),
            Kind::RailBarred => format!(
                "rail {rail}: {} refuses what is sent to others (ICMP port unreachable)",
                self.address()
            ),
            Kind::RailCame => format!("rail {rail} is there now, at {}", self.address()),
            Kind::StandbyCarries => format!("{} takes over: no other carries", path()),
        }
    }

    /// The silent peers of a host, in words.
    fn awaited(&self) -> String {
        let first = self.peer_name();
        match self.event.moved {
            0 | 1 => first,
            peers => format!("{first} and {} more of its host", peers - 1),
        }
    }

    /// The end of a peer, in words.
    fn ended(&self, why: &str, gap: &str) -> String {
        let name = self.peer_name();
        match self.event.reason {
            Reason::Settings | Reason::NoCommonRail | Reason::Versions => {
                format!("{name} is refused: {why}")
            }
            Reason::Unreachable => format!("{name} is dead: {why}, for {gap}"),
            _ => format!("{name} is dead: {why}, silent for {gap}"),
        }
    }

    /// The new packet or segment size of a path, in words.
    fn shrank(&self, path: &str) -> String {
        let why = because(self.event.reason, 0);
        match self.event.detail {
            (from, to) if self.event.reason != Reason::Size => format!(
                "{path} has another connection: segments of {to} bytes, not {from}; the one \
                 before was silent"
            ),
            (_, 0) => format!("{path} is of no use for data: {why}"),
            (from, to) if to < from => {
                format!("{path} lost its packets of {from} bytes, goes on with {to}")
            }
            (from, _) => format!("{path} carries packets of {from} bytes after all"),
        }
    }

    /// The address on which a rail continues.
    fn address(&self) -> String {
        let address = self.event.address();
        address.map_or_else(|| "another address".to_owned(), |ip| ip.to_string())
    }

    /// ` 17 times in 0.4 s`, for repeated events.
    fn times(&self) -> String {
        let lasted_ns = u64::from(self.event.lasted_ms()) * 1_000_000;
        match self.event.times {
            ..=1 => String::new(),
            times => format!(" {times} times in {}", format_gap(lasted_ns)),
        }
    }

    fn peer_name(&self) -> String {
        match self.peer {
            Some(page) => process(page),
            None => {
                let mut rows = self.page.peers.iter();
                let row = rows.find(|row| row.endpoint == self.event.peer);
                let address = row.map_or("", |row| &row.address);
                format!("peer {:016x} {address}", self.event.peer)
                    .trim_end()
                    .to_owned()
            }
        }
    }

    /// The peer with its rail.
    fn whom(&self) -> String {
        let rail = self.event.peer_rail;
        let rail = match self.peer {
            Some(page) => rail_name(page, rail),
            None => format!("rail {rail}"),
        };
        format!("{rail} of {}", self.peer_name())
    }

    /// The event as data.
    pub fn data(&self) -> data::Event {
        let event = self.event;
        let name = |page: Option<&JobPage>, rail: u8| {
            let rail = (rail != NO_RAIL).then_some(rail)?;
            Some(rail_name(page?, rail))
        };
        let peer = data::Peer {
            endpoint: format!("{:016x}", event.peer),
            rank: self.peer.and_then(|page| page.rank),
            host: self.peer.map(|page| page.host.clone()),
            rail: name(self.peer, event.peer_rail),
        };
        let (from, to) = match event.lasted_ms() {
            0 => event.detail,
            _ => (0, 0),
        };
        let address = event.address();
        let (packets_moved, gap_ns) = match address {
            None => (event.moved, event.gap_ns),
            Some(_) => (0, 0),
        };
        data::Event {
            unix_ns: event.unix_ns,
            times: event.times,
            lasted_ms: event.lasted_ms(),
            code: event.code().to_string(),
            kind: event.kind.name(),
            reason: event.reason.name(),
            host: self.page.host.clone(),
            process: self.page.pid,
            rank: self.page.rank,
            rail: name(Some(self.page), event.rail),
            peer: (event.peer != 0).then_some(peer),
            packets_moved,
            gap_ns,
            from,
            to,
            address: address.map(|ip| ip.to_string()),
        }
    }
}

/// The system's text for the error of a failed rail.
fn errno(number: u32) -> String {
    std::io::Error::from_raw_os_error(number as i32).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_engine::stats::rows::RailRow;

    fn json(shown: &Shown<'_>) -> String {
        crate::json::line(&shown.data()).unwrap()
    }

    fn page(rank: u32, events: &[Event]) -> JobPage {
        let rail = |n: u32| RailRow {
            name: format!("rail{n}"),
            ..RailRow::default()
        };
        let mut page = JobPage {
            rank: Some(rank),
            host: format!("h{rank}"),
            endpoints: vec![u64::from(rank) + 1],
            rails: vec![rail(0), rail(1)],
            ..JobPage::default()
        };
        page.events.list = events.to_vec();
        page
    }

    #[test]
    fn every_kind_of_event_is_printed_as_text_and_json() {
        let (here, there) = (page(0, &[]), page(1, &[]));
        for (&kind, &reason) in Kind::ALL.iter().zip(Reason::ALL.iter().cycle()) {
            let event = Event {
                unix_ns: 1_764_166_226_123_456_789,
                times: 1,
                kind,
                reason,
                rail: 0,
                peer_rail: 1,
                peer: 2,
                moved: 212,
                gap_ns: 1_900_000,
                detail: (1_472, 1_200),
            };
            let (page, event) = (&here, &event);
            let peer = Some(&there);
            let shown = Shown { page, event, peer };
            let line = shown.line();
            assert!(line.contains(".123456 rank 0 on h0: "), "{line}");
            assert!(json(&shown).contains(kind.name()));
            let stranger = Shown {
                peer: None,
                ..shown
            };
            assert!(!stranger.line().is_empty() && json(&stranger).contains("null"));
        }
    }

    #[test]
    fn an_abandoned_path_names_the_moved_frames() {
        let event = Event {
            kind: Kind::PathDown,
            reason: Reason::Unanswered,
            rail: 1,
            peer_rail: 1,
            peer: 2,
            moved: 212,
            ..Event::default()
        };
        let (here, there) = (page(0, &[event]), page(1, &[]));
        let shown = Shown {
            page: &here,
            event: &event,
            peer: Some(&there),
        };
        assert_eq!(
            shown.what(),
            "path rail1 to rail1 of rank 1 on h1 is down: unanswered, while another path was \
             answered; 212 packets moved"
        );
    }

    #[test]
    fn an_ended_connection_names_its_evidence() {
        for (reason, number, says) in [
            (
                Reason::Link,
                104,
                "its connection broke: Connection reset by peer (os error 104)",
            ),
            (
                Reason::Link,
                129, // EKEYREJECTED
                "its connection broke: the keys of the two ends differ",
            ),
            (Reason::Closed, 0, "its peer closed the connection"),
            (
                Reason::NobodyListens,
                0,
                "its connection was refused: nobody listens there",
            ),
            (Reason::NobodyAnswers, 0, "nobody answers on its connection"),
            (
                Reason::Completion,
                12,
                "completion error 12: transport retry counter exceeded",
            ),
            (Reason::Completion, 99, "completion error 99"),
        ] {
            let event = Event {
                kind: Kind::PathDown,
                reason,
                rail: 0,
                peer_rail: 0,
                peer: 2,
                moved: 1,
                detail: (number, 0),
                ..Event::default()
            };
            let (page, peer) = (&page(0, &[event]), &page(1, &[]));
            let shown = Shown {
                page,
                event: &event,
                peer: Some(peer),
            };
            let line =
                format!("path rail0 to rail0 of rank 1 on h1 is down: {says}; 1 packets moved");
            assert_eq!(shown.what(), line);
            assert!(json(&shown).contains(reason.name()));
        }
    }

    #[test]
    fn an_icmp_sender_is_named() {
        let event = Event {
            kind: Kind::RailBarred,
            reason: Reason::System,
            rail: 0,
            detail: (0, Ipv4Addr::new(10, 0, 0, 7).to_bits()),
            ..Event::default()
        };
        let (page, event) = (&page(0, &[event]), &event);
        let shown = Shown {
            page,
            event,
            peer: None,
        };
        assert_eq!(
            shown.what(),
            "rail rail0: 10.0.0.7 refuses what is sent to others (ICMP port unreachable)"
        );
    }

    #[test]
    fn doubts_say_how_often_and_how_long() {
        let event = Event {
            times: 17,
            kind: Kind::PathSuspect,
            reason: Reason::Late,
            rail: 0,
            peer_rail: 0,
            peer: 2,
            detail: (420, 0),
            ..Event::default()
        };
        let (here, there) = (page(0, &[event]), page(1, &[]));
        let shown = Shown {
            page: &here,
            event: &event,
            peer: Some(&there),
        };
        assert_eq!(
            shown.what(),
            "path rail0 to rail0 of rank 1 on h1 is suspect 17 times in 420.0 ms: \
             acknowledgements are late"
        );
        let json = json(&shown);
        assert!(
            json.contains("\"times\":17") && json.contains("\"lasted_ms\":420"),
            "{json}"
        );
        assert!(json.contains("\"from\":0"), "{json}");
    }
}
