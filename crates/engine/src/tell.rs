//! What people are told of rails.

use crate::api::{EpId, LogLevel};
use crate::core::Core;
use crate::system::System;
use marline_proto::Event;

impl<S: System> Core<S> {
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
