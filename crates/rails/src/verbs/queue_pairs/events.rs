//! Ends links on asynchronous device events of their queue pair or of the port.

use super::VerbsLinks;
use crate::link::{DownReason, LinkId};
use crate::sys::Errno;

impl VerbsLinks {
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
