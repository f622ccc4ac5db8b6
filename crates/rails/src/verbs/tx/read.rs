//! RDMA reads of peer memory.

use super::{Posted, VerbsTx};
use crate::sys::verbs::QueueType;
use crate::verbs::send_queue::Read as Mark;
use crate::{LinkId, Piece, Read, RemoteRead, SendOutcome};

impl RemoteRead for VerbsTx {
    fn advertise(&mut self, base: *const u8, len: usize) -> Option<u64> {
        let reliable = self.kind == QueueType::Rc;
        let key = reliable.then(|| self.writes.advertise(&self.shared.domain, base, len))?;
        self.report_registered();
        key
    }

    fn open(&mut self, pieces: &[Piece]) -> Option<u64> {
        let opens = self.kind != QueueType::Ud && !self.staged;
        let key = opens.then(|| self.writes.lend(&self.shared.domain, pieces));
        self.report_registered();
        key
    }

    fn read(&mut self, link: LinkId, read: &Read) -> SendOutcome {
        let requests = self.writes.pull(read);
        if self.kind != QueueType::Rc || !self.links.writes(link) || requests.is_empty() {
            return SendOutcome::Busy;
        }
        let marks = [Mark::Peer(read.token)];
        match self.post(link, requests.len(), &marks, |_, at| requests[at]) {
            Posted::Taken => SendOutcome::Sent,
            // `Lost`: the connection ended, so no byte lands.
            Posted::Lost | Posted::NoRoom | Posted::Waits | Posted::Failed(_) => SendOutcome::Busy,
        }
    }
}
