//! Ends links on asynchronous device events of their queue pair or of the port, and those whose
//! writes do not end.

use super::{Link, VerbsLinks};
use crate::link::{DownReason, LinkId};
use crate::sys::Errno;
use crate::verbs::addr::VerbsAddr;

impl VerbsLinks {
    /// Ends all connections with outstanding reads of memory.
    pub(in crate::verbs) fn drain(&mut self) {
        let busy = |(link, _, row): (LinkId, &VerbsAddr, &Link)| {
            let waits = row.connection.as_ref().is_some_and(|c| c.queue.waits());
            waits.then_some(link)
        };
        let links: Vec<LinkId> = self.table.iter().filter_map(busy).collect();
        for link in links {
            self.down(link, DownReason::Broken(libc::ECANCELED));
        }
    }

    /// Takes the link of a queue pair in the error state down.
    #[cold]
    pub(in crate::verbs) fn pair_broken(&mut self, number: u32) {
        if let Some(&link) = self.by_number.get(&number) {
            self.down(link, DownReason::Broken(libc::EIO));
        }
    }

    /// Takes all links down.
    #[cold]
    pub(in crate::verbs) fn end_all(&mut self, errno: Errno) {
        let links: Vec<LinkId> = self.table.iter().map(|(link, ..)| link).collect();
        for link in links {
            self.down(link, DownReason::Broken(errno));
        }
    }
}
