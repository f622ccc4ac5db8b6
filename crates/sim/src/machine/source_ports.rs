//! Source ports of a rail's datagrams, as the UDP rail chooses them: each link has several slots
//! for ports, a flow leaves by one slot, and a flow that is newer than all earlier ones of its slot
//! gets another port.

use marline_rails::LinkId;
use std::collections::BTreeMap;

/// Number of slots for ports of a link. The first is the rail's own port.
const SLOTS: usize = 5;

/// By slot: the newest flow other than the slot's own number, and its port if one was needed.
type Slots = [(Option<u8>, u32); SLOTS];

/// The source ports of a rail.
#[derive(Debug, Default)]
pub(crate) struct SourcePorts {
    links: BTreeMap<u32, Slots>,
    last: u32,
}

impl SourcePorts {
    /// The port by which a link's flow leaves; 0 is the rail's own.
    pub(crate) fn of(&mut self, link: LinkId, flow: u8) -> u32 {
        let slot = flow as usize % SLOTS;
        let (newest, port) = &mut self.links.entry(link.0).or_default()[slot];
        let later = |newest: u8| (flow.wrapping_sub(newest) as i8) > 0;
        let newer = flow as usize >= SLOTS && newest.is_none_or(later);
        if newer {
            *newest = Some(flow);
        }
        if slot > 0 && (newer || *port == 0) {
            self.last += 1;
            *port = self.last;
        }
        *port
    }

    /// Forgets a closed link, whose number may be given to another.
    pub(crate) fn close(&mut self, link: LinkId) {
        self.links.remove(&link.0);
    }
}
