//! Flows of datagrams, and which of them the network has forgotten.

use crate::machine::connections::Way;
use std::collections::BTreeSet;

/// A flow of datagrams: of an endpoint, between two rails, by its source and destination ports.
type Flow = (u32, Way, (u32, u16));

/// The flows of a world.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    seen: BTreeSet<Flow>,
    forgotten: BTreeSet<Flow>,
}

impl Flows {
    /// Notes that datagrams of a flow leave. Returns whether the network has forgotten the flow.
    pub(crate) fn leave(&mut self, flow: Flow) -> bool {
        self.seen.insert(flow);
        self.forgotten.contains(&flow)
    }

    /// Forgets all flows seen at a rail.
    pub(crate) fn forget(&mut self, at: (usize, usize)) {
        let of = |flow: &&Flow| flow.1 .0 == at || flow.1 .1 == at;
        self.forgotten.extend(self.seen.iter().filter(of));
    }
}
