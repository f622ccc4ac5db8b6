//! What people are told of rails and peers.

use crate::api::{EpId, LogLevel};
use crate::core::Core;
use crate::system::System;
use marline_proto::{Event, PeerId};

impl<S: System> Core<S> {
    /// A peer is dead, and why we think so.
    pub(crate) fn say_dead(&mut self, ep: EpId, peer: PeerId, silent_ms: u64, refused: bool) {
        self.stats.peers_dead += 1;
        let who = self.describe(ep, peer);
        let why = if refused {
            format!(
                "its process is gone (its host refuses packets, nothing heard for {silent_ms} ms)"
            )
        } else {
            format!("silent on every rail for {silent_ms} ms (FI_MARLINE_PEER_TIMEOUT_MS)")
        };
        let text = format!("peer {who} is dead: {why}; its operations end with an error");
        self.say(LogLevel::Warn, &text);
    }

    /// Who corrupts, and what was done about it.
    pub(crate) fn say_corrupt(&self, ep: EpId, event: &Event) {
        let &Event::PathCorrupts {
            peer,
            rail,
            remote_rail,
            damaged,
            of,
            told,
            left,
        } = event
        else {
            return;
        };
        let name = self
            .rails
            .get(rail as usize)
            .map_or("?", |r| r.name.as_str());
        let who = self.describe(ep, peer);
        let text = match (told, left) {
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
        self.say(LogLevel::Warn, &text);
    }
}
