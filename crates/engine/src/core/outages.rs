//! Outages: events of paths, rails and peers for the statistics page, and log lines about them.

use crate::api::{EpId, LogLevel};
use crate::core::Core;
use crate::platform::system::System;
use crate::stats::events::{versions_in, Event, Kind, Reason, NO_RAIL};
use marline_codes::Code;
use marline_proto as proto;
use marline_proto::{PathReason, PathState, PeerId};
use marline_rails::{RailFault, RailTx, UdpAddr};
use marline_wire::RailAddr;
use std::net::IpAddr;

/// Translates a node's reason for the page, with an error number if there is one.
fn reason(why: PathReason) -> (Reason, u32) {
    let reason = match why {
        PathReason::Proven | PathReason::Answered => Reason::Answered,
        PathReason::Unanswered => Reason::Unanswered,
        PathReason::RailDown => Reason::Rail,
        PathReason::LinkDown(word) => return Reason::of_end(word),
        PathReason::NoRoom => Reason::NoRoom,
        PathReason::Corrupt => Reason::Corrupt,
        PathReason::Size => Reason::Size,
        PathReason::NoBetter => Reason::NoBetter,
        PathReason::Moved => Reason::Moved,
    };
    (reason, 0)
}

/// The reason as text.
fn words(why: PathReason) -> String {
    let text = match why {
        PathReason::Proven | PathReason::Answered => "it answers",
        PathReason::Unanswered => "nothing that is sent on it is answered",
        PathReason::RailDown => "the rail is down",
        PathReason::LinkDown(word) => {
            let (reason, number) = Reason::of_end(word);
            return reason.of_connection(number).unwrap_or_default();
        }
        PathReason::NoRoom => "its queue does not move",
        PathReason::Corrupt => "what is sent on it arrives damaged",
        PathReason::Size => "no packets pass that are long enough for data",
        PathReason::NoBetter => "no other is better",
        PathReason::Moved => "the peer's rail has another address",
    };
    text.to_owned()
}

/// The record of an event about a path, and its peer.
fn of_path(event: &proto::Event) -> Option<(PeerId, Event)> {
    let none = Event::default();
    let (peer, (rail, peer_rail), event) = match *event {
        proto::Event::PathChanged {
            peer,
            rail,
            remote_rail,
            state,
            why,
            moved,
        } => {
            let kind = kind_of_change(state, why)?;
            let (moved, (reason, number)) = (moved.into(), reason(why));
            #[rustfmt::skip]
            let event = Event { kind, reason, moved, detail: (number, 0), ..none };
            (peer, (rail, remote_rail), event)
        }
        proto::Event::PathSuspect {
            peer,
            rail,
            remote_rail,
            suspect,
            gap_ns,
        } => {
            let (kind, reason) = match suspect {
                true => (Kind::PathSuspect, Reason::Late),
                false => (Kind::PathCleared, Reason::Answered),
            };
            #[rustfmt::skip]
            let event = Event { kind, reason, gap_ns, ..none };
            (peer, (rail, remote_rail), event)
        }
        proto::Event::Resumed {
            peer,
            rail,
            remote_rail,
            gap_ns,
        } => {
            #[rustfmt::skip]
            let event = Event { kind: Kind::Resumed, gap_ns, ..none };
            (peer, (rail, remote_rail), event)
        }
        proto::Event::PathShrank {
            peer,
            rail,
            remote_rail,
            from,
            to,
            why,
        } => {
            let (reason, detail) = (reason(why).0, (from as u32, to as u32));
            #[rustfmt::skip]
            let event = Event { kind: Kind::PathShrank, reason, detail, ..none };
            (peer, (rail, remote_rail), event)
        }
        proto::Event::PathRerouted {
            peer,
            rail,
            remote_rail,
        } => {
            #[rustfmt::skip]
            let event = Event { kind: Kind::PathRerouted, reason: Reason::Late, ..none };
            (peer, (rail, remote_rail), event)
        }
        _ => return None,
    };
    #[rustfmt::skip]
    let event = Event { rail, peer_rail, ..event };
    Some((peer, event))
}

/// The kind of a path's change, if it is recorded.
fn kind_of_change(state: PathState, why: PathReason) -> Option<Kind> {
    match (state, why) {
        (_, PathReason::Proven) => None, // the normal begin of a path
        (PathState::Down, PathReason::Corrupt) => Some(Kind::PathIsolated),
        (PathState::Down, _) => Some(Kind::PathDown),
        _ => Some(Kind::PathUp),
    }
}

/// The record of a peer that was refused at first contact, and that peer.
fn of_refusal(event: &proto::Event) -> Option<(PeerId, Event)> {
    let (peer, reason, detail) = match *event {
        proto::Event::PeerMismatch { peer, reliable } => {
            (peer, Reason::Settings, (u32::from(reliable), 0))
        }
        proto::Event::PeerVersions { peer, ours, theirs } => {
            (peer, Reason::Versions, versions_in(ours, theirs))
        }
        // `record_event` fills in the kinds of rails.
        proto::Event::PeerUnreachable { peer } => (peer, Reason::NoCommonRail, (0, 0)),
        _ => return None,
    };
    let event = Event {
        kind: Kind::PeerDead,
        reason,
        detail,
        ..Event::default()
    };
    Some((peer, event))
}

/// The record of a peer's death, and the peer.
fn of_death(event: &proto::Event) -> Option<(PeerId, Event)> {
    let &proto::Event::PeerDead {
        peer,
        silent_ms,
        refused,
        heard,
        lost,
    } = event
    else {
        return None;
    };
    let reason = match (lost, refused, heard) {
        (true, ..) => Reason::Lost,
        (_, Some(evidence), _) if evidence.is_certain() => Reason::Gone,
        (_, Some(_), _) => Reason::Refused,
        (.., true) => Reason::Unreachable,
        _ => Reason::Silent,
    };
    let event = Event {
        kind: Kind::PeerDead,
        reason,
        gap_ns: silent_ms.saturating_mul(1_000_000),
        ..Event::default()
    };
    Some((peer, event))
}

/// Kinds of rails as a mask: bit n stands for kind number n.
fn kinds(rails: impl Iterator<Item = RailAddr>) -> u32 {
    rails.fold(0, |mask, rail| mask | 1 << rail.kind as u32) & !1
}

impl<S: System> Core<S> {
    /// Records an event about a path or a peer on the page.
    pub(crate) fn record_event(&mut self, ep: EpId, event: &proto::Event) {
        let why = PathReason::Proven;
        let first = matches!(event, proto::Event::PathChanged { why: w, .. } if *w == why);
        let Some((peer, event)) = of_path(event)
            .or_else(|| of_death(event))
            .or_else(|| of_refusal(event))
        else {
            return;
        };
        let address = self.dir.node(ep).and_then(|node| node.peer_address(peer));
        let peer = address.map_or(0, |address| address.id);
        let detail = match (event.reason, address) {
            (Reason::NoCommonRail, Some(address)) => (
                kinds(self.rails.iter().map(|rail| rail.tx.local_addr())),
                kinds(address.rails().iter()),
            ),
            _ => event.detail,
        };
        let kind = match event.kind {
            Kind::PathUp if self.stands_by(event.rail) => Kind::StandbyCarries,
            Kind::PathUp if first => return, // the normal begin of a path
            kind => kind,
        };
        if kind == Kind::Resumed {
            self.counters.waits.outages.count(event.gap_ns);
        }
        #[rustfmt::skip]
        self.outages.record(Event { kind, peer, detail, ..event });
    }

    /// Logs that a path is declared down or in use again.
    pub(crate) fn say_path(&mut self, ep: EpId, event: &proto::Event) {
        let &proto::Event::PathChanged {
            peer,
            rail,
            remote_rail,
            state,
            why,
            moved,
        } = event
        else {
            return;
        };
        let path = (ep.0, peer.0, rail, remote_rail);
        let name = self.rail_name(rail);
        let who = self.describe(ep, peer);
        let between = format!("rail {name} to {who} (its rail {remote_rail})");
        let (text, matters) = match state {
            PathState::Down => {
                let text = format!("{between} is lost: {}; {moved} packets moved", words(why));
                // `note_rail` logs a rail that is down, and `say_corrupt` logs damage.
                let said = matches!(why, PathReason::RailDown | PathReason::Corrupt);
                let said = said || self.stands_by(rail);
                (text, !said && self.outages.lose(path))
            }
            _ if self.stands_by(rail) => (
                format!("{between} takes over: no other carries"),
                !self.outages.stood_in(path),
            ),
            _ => {
                let word = match why {
                    PathReason::Proven => "in use",
                    _ => "back",
                };
                let text = format!("{between} is {word}: {}", words(why));
                (text, self.outages.regain(path))
            }
        };
        self.warn_if(matters, Code::PathDown, &text);
    }

    /// Records and logs that the system or the rail itself declares a rail down or up.
    pub(crate) fn note_rail(&mut self, rail: usize, fault: RailFault) {
        let state = self.rails.get(rail).filter(|rail| !rail.tx.caps().standby);
        let Some(name) = state.map(|rail| rail.name.clone()) else {
            return; // the rail in front of a standby reports the same
        };
        let at = u8::try_from(rail).unwrap_or(NO_RAIL);
        if !self.rails[rail].tx.local_addr().is_some() {
            return self.note_awaited(at, &name, fault);
        }
        let (kind, errno, text) = match fault {
            RailFault::Up if std::mem::take(&mut self.rails[rail].came) => return, // reported
            RailFault::Up => (Kind::RailUp, 0, format!("rail {name} is back")),
            RailFault::Down(errno) => {
                let why = match errno {
                    libc::ENODEV => "there is no such interface any more",
                    libc::ENETDOWN => "its interface is down",
                    libc::EADDRNOTAVAIL => "its interface has lost the address",
                    _ => "it reports an error",
                };
                (Kind::RailDown, errno, format!("rail {name} is lost: {why}"))
            }
        };
        self.outages.record(Event {
            kind,
            reason: Reason::System,
            rail: at,
            detail: (errno.unsigned_abs(), 0),
            ..Event::default()
        });
        self.warn_if(true, Code::RailDown, &text);
    }

    /// Records and logs, once per address, that a host or router rejects packets that a rail sends
    /// to others.
    pub(crate) fn note_barred(&mut self, rail: usize, by: IpAddr) {
        let at = u8::try_from(rail).unwrap_or(NO_RAIL);
        if !self.outages.bar(at, by) {
            return;
        }
        let event = Event {
            kind: Kind::RailBarred,
            reason: Reason::System,
            rail: at,
            ..Event::default()
        };
        self.outages.record(event.at(by));
        let name = self.rail_name(at);
        let text = format!(
            "rail {name}: {by} refuses what is sent to others (ICMP port unreachable): a firewall, \
             or one more address of such a host"
        );
        self.warn_if(true, Code::Blocked, &text);
    }

    /// Records and logs why a rail waits. This is no outage, but is logged because the rail's name
    /// may be wrong.
    fn note_awaited(&mut self, rail: u8, name: &str, fault: RailFault) {
        let RailFault::Down(errno) = fault else {
            return;
        };
        let why = match errno {
            libc::ENODEV => "there is no such interface",
            libc::ENETDOWN => "its interface is down, or has no carrier",
            libc::EADDRNOTAVAIL => {
                "its interface has no address (of IPv4; of IPv6 where all other rails have that)"
            }
            _ => "it reports an error",
        };
        let text = format!("rail {name} is waited for: {why}");
        if name.contains("later:") {
            return self.say(LogLevel::Info, &text); // any of several rails: none is required
        }
        self.outages.record(Event {
            kind: Kind::RailAwaited,
            reason: Reason::System,
            rail,
            detail: (errno.unsigned_abs(), 0),
            ..Event::default()
        });
        let first = self.outages.await_rail(rail);
        self.warn_if(first, Code::RailAwaited, &text);
    }

    /// Records and logs that a rail continues at another address of its interface.
    pub(crate) fn note_moved(&mut self, rail: usize, from: &RailAddr, to: &RailAddr) {
        let at = u8::try_from(rail).unwrap_or(NO_RAIL);
        if self.stands_by(at) {
            return; // the rail in front of a standby reports the same
        }
        let ip = |addr: &RailAddr| UdpAddr::read(addr).map(|addr| addr.ip);
        let was = match ip(from) {
            Some(IpAddr::V4(ip)) => ip.to_bits(),
            _ => 0,
        };
        let text = |addr: &RailAddr| ip(addr).map_or("?".to_owned(), |ip| ip.to_string());
        let name = self.rail_name(at);
        let (kind, text) = match from.is_some() {
            true => {
                let (from, to) = (text(from), text(to));
                let text = format!("rail {name} has moved from {from} to {to}");
                (Kind::RailMoved, text)
            }
            false => {
                let text = format!("rail {name} is there now, at {}", text(to));
                (Kind::RailCame, text)
            }
        };
        self.rails[rail].came = kind == Kind::RailCame;
        let event = Event {
            kind,
            reason: Reason::System,
            rail: at,
            detail: (was, 0),
            ..Event::default()
        };
        self.outages.record(match ip(to) {
            Some(ip) => event.at(ip),
            None => event,
        });
        self.warn_if(true, kind.code(), &text);
    }

    /// Records and logs that a rail was renamed with its interface.
    pub(crate) fn note_renamed(&mut self, rail: usize, was: &str) {
        let at = u8::try_from(rail).unwrap_or(NO_RAIL);
        if self.stands_by(at) {
            return; // the rail in front of a standby reports the same
        }
        let name = self.rail_name(at);
        let text = format!("rail {was} is called {name} now, as its interface is");
        self.outages.record(Event {
            kind: Kind::RailRenamed,
            reason: Reason::System,
            rail: at,
            ..Event::default()
        });
        self.warn_if(true, Code::RailMoved, &text);
    }

    /// Ends all outages of a peer from which nothing more is expected.
    pub(crate) fn forget_outages(&mut self, ep: EpId, peer: PeerId) {
        self.outages.forget(ep.0, peer.0);
    }

    /// Logs at warning level if the event `matters` and this process warns for its host, otherwise
    /// at info level.
    fn warn_if(&mut self, matters: bool, code: Code, text: &str) {
        if !(matters && self.outages.may_warn()) {
            return self.say(LogLevel::Info, text);
        }
        self.warn(code, text);
        if self.outages.is_silent() {
            let last = "rails are lost and come back too often to say it each time: \
                        `marline events` shows it";
            self.warn(Code::PathDown, last);
        }
    }

    fn stands_by(&self, rail: u8) -> bool {
        let rail = self.rails.get(rail as usize);
        rail.is_some_and(|rail| rail.tx.caps().standby)
    }

    pub(crate) fn rail_name(&self, rail: u8) -> &str {
        let rail = self.rails.get(rail as usize);
        rail.map_or("?", |rail| rail.name.as_str())
    }
}
