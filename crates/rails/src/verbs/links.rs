//! The links of a rail of datagrams: a handle for each peer's address.

use super::addr::VerbsAddr;
use super::resolver::Resolver;
use super::shared::Shared;
use crate::link::{Connected, DownReason, LinkId, LinkTable};
use crate::sys::verbs::{AddressHandle, Path};
use crate::sys::Errno;
use crate::RailEvent;
use std::sync::Arc;

/// The way of a link.
enum Way {
    /// It is looked for, under this name.
    Asked(u64),
    /// Datagrams go by this handle.
    Found(AddressHandle),
    /// There is none.
    None,
}

/// The links of a rail.
pub(super) struct DatagramLinks {
    shared: Arc<Shared>,
    table: LinkTable<VerbsAddr, Way>,
    resolver: Resolver,
    asked: u64,
    /// Handles of links that were closed, which requests that are posted may still name.
    closed: Vec<AddressHandle>,
}

impl DatagramLinks {
    pub(super) fn new(shared: Arc<Shared>) -> DatagramLinks {
        DatagramLinks {
            table: LinkTable::default(),
            resolver: Resolver::new(shared.clone()),
            shared,
            asked: 0,
            closed: Vec::new(),
        }
    }

    /// The link to a rail: one more user of it.
    pub(super) fn connect(&mut self, to: VerbsAddr) -> Connected {
        let known = self.table.find(&to).is_some();
        let name = self.asked + 1;
        let link = self.table.connect(to, || Way::Asked(name));
        if !known {
            self.asked = name;
            self.resolver.ask(name, path(&self.shared, &to));
        }
        let up = matches!(self.table.get(link), Some(Way::Found(_)));
        Connected { link, up }
    }

    /// One user less.
    pub(super) fn close(&mut self, link: LinkId) {
        if let Some(Way::Found(handle)) = self.table.close(link) {
            self.closed.push(handle);
        }
    }

    /// Nothing is posted that names a link.
    pub(super) fn idle(&mut self) {
        self.closed.clear();
    }

    /// Where datagrams of a link go; `None`: nowhere.
    #[inline]
    pub(super) fn way(&self, link: LinkId) -> Option<(&AddressHandle, u32)> {
        match self.table.get(link)? {
            Way::Found(handle) => Some((handle, self.table.key(link)?.number)),
            Way::Asked(_) | Way::None => None,
        }
    }

    /// The answer to a question.
    #[cold]
    pub(super) fn resolved(
        &mut self,
        name: u64,
        found: Result<AddressHandle, Errno>,
    ) -> Option<RailEvent> {
        let asked = |way: &Way| matches!(way, Way::Asked(n) if *n == name);
        let link = self.table.iter().find(|(_, _, way)| asked(way))?.0;
        let (way, event) = match found {
            Ok(handle) => (Way::Found(handle), RailEvent::LinkUp(link)),
            Err(errno) => {
                self.table.retire(link);
                let why = DownReason::Broken(errno);
                (Way::None, RailEvent::LinkDown(link, why))
            }
        };
        *self.table.get_mut(link)? = way;
        Some(event)
    }
}

/// The path to an address.
pub(super) fn path(shared: &Shared, to: &VerbsAddr) -> Path {
    let (gid, lid) = to.node.gid_and_lid();
    Path {
        port: shared.port.number,
        gid_index: shared.port.gid_index,
        gid,
        lid,
    }
}
