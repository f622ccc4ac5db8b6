//! ECMP flows of datagrams, and the flows that the network has forgotten.
//!
//! A flow is identified by its ends and its source port. A rail uses a new port for each flow
//! number of the protocol that is newer than all before; every fifth flow uses the rail's own port.

use crate::machine::connections::Way;
use std::collections::{BTreeMap, BTreeSet};

/// Every flow number divisible by this uses the rail's own port.
const OWN_EVERY: u8 = 5;

/// A flow of datagrams: endpoint, pair of rails, source port (0: the rail's own).
type Flow = (u32, Way, u32);

/// The flows of a world.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    /// The newest flow number and its port, by endpoint and pair of rails.
    newest: BTreeMap<(u32, Way), (u8, u32)>,
    seen: BTreeSet<Flow>,
    forgotten: BTreeSet<Flow>,
}

impl Flows {
    /// Notes a flow of leaving datagrams; returns whether the network has forgotten it.
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

    /// Forgets all flows seen at a rail.
    pub(crate) fn forget(&mut self, at: (usize, usize)) {
        let of = |flow: &&Flow| flow.1 .0 == at || flow.1 .1 == at;
        self.forgotten.extend(self.seen.iter().filter(of));
    }
}
