//! Links whose datagrams leave by an additional flow (ECMP).

use super::VerbsLinks;
use crate::link::LinkId;
use crate::sys::verbs::Path;
use crate::verbs::flows::flow_of;
use crate::verbs::shared::FLOWS;

impl VerbsLinks {
    /// Sets the flow of the next send on the link: 0 is the rail's own queue pair; higher numbers
    /// wrap around.
    #[inline]
    pub(in crate::verbs) fn choose_flow(&mut self, link: LinkId, flow: u8) {
        self.flows.choose_none();
        let other = (flow as usize % (FLOWS + 1)).checked_sub(1);
        if let Some(other) = other.filter(|_| self.shared.connections.is_none()) {
            self.choose_other(link, other);
        }
    }

    /// Selects an additional flow and, at its first use on this link, asks for the flow's address
    /// handle.
    #[cold]
    fn choose_other(&mut self, link: LinkId, flow: usize) {
        let chosen = self.flows.choose(&self.shared, flow);
        let (Some(number), Some(to)) = (chosen, self.table.key(link)) else {
            return;
        };
        let Some(row) = self.table.get_mut(link) else {
            return;
        };
        if row.others.is_asked(flow) {
            return;
        }
        let name = row.name;
        let path = Path {
            flow: flow_of(number, to.number),
            ..self.path(&to)
        };
        self.resolver.ask((name, Some(flow)), path);
    }

    /// Returns whether the queue pair of this number sends datagrams.
    #[cold]
    pub(in crate::verbs) fn is_of_datagrams(&mut self, number: u32) -> bool {
        number == self.shared.datagrams.number() || self.flows.queue(number).is_some()
    }

    /// Ends the queue pairs of additional flows, which then read no memory.
    #[cold]
    pub(super) fn end_flows(&mut self) {
        for (pair, queue) in self.flows.take() {
            self.end_pair(pair, queue);
        }
    }
}
