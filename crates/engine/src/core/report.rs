//! Log lines about rails and peers.

use crate::api::{EpId, LogLevel};
use crate::core::Core;
use crate::platform::system::System;
use crate::state::pairing::{list_rails, show_address};
use crate::stats::events::{differing, differing_versions};
use marline_checksum::{Algorithm, Strength};
use marline_codes::Code;
use marline_proto::{Event, Evidence, PathReason, PeerId};
use marline_rails::RailTx;
use marline_wire::RailAddr;

/// Most peers named in one line: losing a whole job could name thousands.
const NAMED_MAX: usize = 4;

impl<S: System> Core<S> {
    /// Logs a peer's death and its evidence.
    pub(crate) fn say_dead(&mut self, ep: EpId, event: &Event) {
        let &Event::PeerDead {
            peer,
            silent_ms,
            refused,
            heard,
            lost,
        } = event
        else {
            return;
        };
        self.counters.process.peers_dead += 1;
        let who = self.describe(ep, peer);
        let why = if lost {
            "something was lost on a rail without software reliability (FI_MARLINE_TEST=native): \
             no retransmission is possible"
                .to_owned()
        } else if let Some(evidence) = refused {
            why_gone(evidence, silent_ms)
        } else if heard {
            format!(
                "it is heard, but nothing that is sent arrives on any rail, for {silent_ms} ms \
                 (FI_MARLINE_PEER_TIMEOUT_MS)"
            )
        } else {
            format!("silent on every rail for {silent_ms} ms (FI_MARLINE_PEER_TIMEOUT_MS)")
        };
        let text = format!("peer {who} is dead: {why}; its operations end with an error");
        self.warn(Code::PeerDead, &text);
    }

    /// Logs a path that damages packets, and the reaction.
    pub(crate) fn say_corrupt(&self, ep: EpId, event: &Event) {
        let &Event::PathCorrupts {
            peer,
            rail,
            remote_rail,
            damaged,
            of,
            by_peer,
            left,
        } = event
        else {
            return;
        };
        let name = self.rail_name(rail);
        let who = self.describe(ep, peer);
        let text = match (by_peer, left) {
            (false, _) => format!(
                "rail {name} from {who} (its rail {remote_rail}) corrupts: {damaged} of {of} \
                 packets arrived damaged and are sent again; the sender is told"
            ),
            (true, true) => format!(
                "rail {name} to {who} (its rail {remote_rail}) corrupts what we send: left until \
                 its probes arrive undamaged; check card, cable and switch port"
            ),
            (true, false) => format!(
                "rail {name} to {who} (its rail {remote_rail}) corrupts what we send: kept, as no \
                 other rail is better"
            ),
        };
        self.warn(Code::Corrupt, &text);
    }

    /// Logs that a path drops long packets and passes short ones, or that a connection with shorter
    /// segments replaced a silent connection.
    pub(crate) fn say_shrank(&self, ep: EpId, event: &Event) {
        let &Event::PathShrank {
            peer,
            rail,
            remote_rail,
            from,
            to,
            why,
        } = event
        else {
            return;
        };
        let name = self.rail_name(rail);
        let who = self.describe(ep, peer);
        let path = format!("rail {name} to {who} (its rail {remote_rail})");
        let text = match to {
            _ if why != PathReason::Size => {
                let text = format!(
                    "{path}: its connection was silent; the one in its place has segments of {to} \
                     bytes, not {from}"
                );
                return self.say(LogLevel::Info, &text); // the fault may have been another
            }
            0 => format!(
                "{path}: small packets arrive, but none of {from} bytes, which data needs; check \
                 the MTU of its switches"
            ),
            _ if to < from => format!(
                "{path}: datagrams of {from} bytes vanish, without a word from the network; \
                 continues with {to} bytes and asks for more now and then; check the MTU of its \
                 switches"
            ),
            _ => return, // chance: the present size passes after all
        };
        self.warn(Code::PathShrank, &text);
    }

    /// Logs an endpoint that closes with unacked messages.
    pub(crate) fn say_undelivered(&mut self, ep: EpId) {
        let Some(endpoint) = self.dir.ep(ep) else {
            return;
        };
        let (peers, state) = (endpoint.node.undelivered(), endpoint.node.describe());
        let mut named: Vec<String> = (peers.iter().take(NAMED_MAX))
            .map(|&(peer, count)| format!("{count} to {}", self.describe(ep, peer)))
            .collect();
        if peers.len() > NAMED_MAX {
            named.push(format!("others to {} more peers", peers.len() - NAMED_MAX));
        }
        let text = format!(
            "endpoint closed with sends that were not acknowledged within 2 s ({}); their peers \
             may not have got them",
            named.join(", ")
        );
        self.warn(Code::Undelivered, &text);
        self.say(LogLevel::Debug, &state);
    }

    pub(crate) fn describe(&self, ep: EpId, peer: PeerId) -> String {
        let endpoint = self.dir.eps.get(ep.0 as usize).and_then(Option::as_ref);
        match endpoint.and_then(|e| e.node.peer_address(peer)) {
            Some(a) => format!("{:016x} at {}", a.id, show_address(a)),
            None => "?".to_owned(),
        }
    }
}

/// The evidence of a peer's death as text, stated no more certainly than it is.
fn why_gone(evidence: Evidence, silent_ms: u64) -> String {
    let what = match evidence {
        Evidence::NoSuchName => "its process is gone (nobody on this host has its name",
        Evidence::Ended => {
            "its process is gone (its host ended its connections and refuses new ones"
        }
        Evidence::Both => "its host refuses packets and connections",
        Evidence::OneProcess => "its host refuses what is sent to this process alone",
        Evidence::Packets => "its host refuses packets",
        Evidence::Connections => "its host refuses connections",
    };
    match evidence.is_certain() {
        true => format!("{what}, nothing heard for {silent_ms} ms)"),
        false => format!("{what}, and nothing was heard for {silent_ms} ms"),
    }
}

/// Disagreements of settings between two peers.
impl<S: System> Core<S> {
    /// Logs a peer that was refused at first contact: its settings differ, or no rail reaches it.
    pub(crate) fn say_refused_peer(&mut self, ep: EpId, event: &Event) {
        let (peer, code, why) = match *event {
            Event::PeerMismatch { peer, reliable } => {
                let why = differing(reliable, "here", "there");
                (peer, Code::SettingsDiffer, why)
            }
            Event::PeerUnreachable { peer } => {
                (peer, Code::NoCommonRail, self.no_common_rail(ep, peer))
            }
            Event::PeerVersions { peer, ours, theirs } => {
                let why = differing_versions((ours, "here"), theirs);
                (peer, Code::VersionsDiffer, why)
            }
            _ => return,
        };
        self.record_event(ep, event);
        self.forget_outages(ep, peer);
        self.counters.process.peers_dead += 1;
        let who = self.describe(ep, peer);
        let text = format!("peer {who} is refused: {why}; its operations end with an error");
        self.warn(code, &text);
    }

    /// The rails of both sides, none of which reaches one of the other side.
    fn no_common_rail(&self, ep: EpId, peer: PeerId) -> String {
        let ours: Vec<RailAddr> = self.rails.iter().map(|r| r.tx.local_addr()).collect();
        let node = self.dir.node(ep);
        let address = node.and_then(|node| node.peer_address(peer));
        let theirs: Vec<RailAddr> = address.map_or_else(Vec::new, |a| a.rails().iter().collect());
        let common = ours.iter().any(|a| theirs.iter().any(|b| a.kind == b.kind));
        let what = if common {
            "way between rails"
        } else {
            "common kind of rail"
        };
        format!(
            "no {what}: here {}, there {} (FI_MARLINE_RAILS)",
            list_rails(&ours),
            list_rails(&theirs)
        )
    }

    /// Logs a peer's rail that this version does not support, once per kind and endpoint.
    pub(crate) fn say_unknown_kind(&self, kind: u8) {
        let text = format!(
            "a peer has rails of kind {kind}, which this version of Marline does not know: they \
             are not used"
        );
        self.warn(Code::VersionsDiffer, &text);
    }

    /// Logs a remedy, once, for a rail that could not register the program's memory and fell back
    /// to another method.
    pub(crate) fn unregistered(&mut self, rail: usize, errno: i32) {
        let first = self.rails.iter().all(|r| r.counters.unregistered == 0);
        self.rails[rail].counters.unregistered += 1;
        if !first {
            return;
        }
        let why = std::io::Error::from_raw_os_error(errno);
        let advice = match errno {
            libc::ENOMEM | libc::EPERM => ": raise the limit on locked memory (`ulimit -l`)",
            _ => "",
        };
        let name = &self.rails[rail].name;
        let text = format!(
            "rail {name}: memory of the program cannot be registered ({why}): long messages are \
             copied, or go as packets, and are slower{advice}"
        );
        self.warn(Code::LockedMemory, &text);
    }

    /// Logs a checksum agreed with `peer` that neither side requested. Silent if both requests were
    /// strong, since the default depends on the processor.
    pub(crate) fn say_agreed(&self, ep: EpId, peer: PeerId, preference: u8, agreed: u8) {
        let strength = |n| Algorithm::from_u8(n).map(Algorithm::strength);
        if [preference, self.cfg.proto.algorithm].map(strength) == [Some(Strength::Strong); 2] {
            return;
        }
        let who = self.describe(ep, peer);
        let name = |n| Algorithm::from_u8(n).map(Algorithm::name);
        let agreed = name(agreed).unwrap_or("?");
        let (level, asks) = match name(preference) {
            Some(preference) => (LogLevel::Info, preference.to_owned()),
            None => (
                LogLevel::Warn(Code::VersionsDiffer),
                format!("number {preference}, which this version does not know"),
            ),
        };
        let ours = name(self.cfg.proto.algorithm).unwrap_or("?");
        self.say(
            level,
            &format!(
                "peer {who} asks for checksum {asks}, this process for {ours}: {agreed} is used \
                 both ways"
            ),
        );
    }
}
