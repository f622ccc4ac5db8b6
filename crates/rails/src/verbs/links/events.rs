//! Links that end as the device tells of their queue pair, or of the port.

use super::VerbsLinks;
use crate::link::{DownReason, LinkId};
use crate::sys::Errno;

impl VerbsLinks {
    /// A connection's queue pair is in error.
    #[cold]
    pub(in crate::verbs) fn pair_broken(&mut self, number: u32) {
        if let Some(&link) = self.by_number.get(&number) {
            self.down(link, DownReason::Broken(libc::EIO));
        }
    }

    /// All links end.
    #[cold]
    pub(in crate::verbs) fn end_all(&mut self, errno: Errno) {
        let links: Vec<LinkId> = self.table.iter().map(|(link, ..)| link).collect();
        for link in links {
            self.down(link, DownReason::Broken(errno));
        }
    }
}
