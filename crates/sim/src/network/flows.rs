//! Flows of datagrams, and which of them the network has forgotten.
//!
//! A flow is known by its ends and by its source port, of which a rail has a new one for each flow
//! of its protocol that is newer than all before; every fifth leaves by the rail's own.

use crate::machine::connections::Way;
use std::collections::{BTreeMap, BTreeSet};

/// Every so many flows leave by the rail's own port.
const OWN_EVERY: u8 = 5;

/// A flow of datagrams: of an endpoint, between two rails, by its source port (0: the rail's own).
type Flow = (u32, Way, u32);

/// The flows of a world.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    /// Of an endpoint, between two rails: the newest flow, and its port.
    newest: BTreeMap<(u32, Way), (u8, u32)>,
    seen: BTreeSet<Flow>,
    forgotten: BTreeSet<Flow>,
}

impl Flows {
    /// Datagrams leave by a flow; whether it is forgotten.
    pub(crate) fn leave(&mut self, e: u32, way: Way, flow: u8) -> bool {
        let (newest, port) = self.newest.entry((e, way)).or_default();
        if (flow.wrapping_sub(*newest) as i8) > 0 {
            (*newest, *port) = (flow, *port + 1);
        }
        let own = flow % OWN_EVERY == 0;
        let flow = (e, way, if own { 0 } else { *port });
        self.seen.insert(flow);
        self.forgotten.contains(&flow)
    }

    /// All that were seen at a rail are forgotten.
    pub(crate) fn forget(&mut self, at: (usize, usize)) {
        let of = |flow: &&Flow| flow.1 .0 == at || flow.1 .1 == at;
        self.forgotten.extend(self.seen.iter().filter(of));
    }
}
