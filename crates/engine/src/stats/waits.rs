//! The waits of a process as histograms.

use super::words::{record, Source, Words};
pub use marline_proto::{Waits, WAIT_CLASSES};

record! {
    /// Waits of messages by the way that they were sent, and of outages.
    #[derive(Copy)]
    ProcessWaits {
        /// Messages sent eagerly: from the first chance to leave to the last ack.
        eager: Waits,
        /// Messages sent after a grant: the same, without the time from the ack of the request to
        /// the grant.
        rendezvous: Waits,
        /// Outages after which a peer was reached again: the time without a delivery.
        outages: Waits,
    }
}

impl ProcessWaits {
    /// Adds the waits of another process.
    pub fn merge(&mut self, other: &ProcessWaits) {
        self.eager.merge(&other.eager);
        self.rendezvous.merge(&other.rendezvous);
        self.outages.merge(&other.outages);
    }

    /// The waits of all messages.
    pub fn messages(&self) -> Waits {
        let mut all = self.eager;
        all.merge(&self.rendezvous);
        all
    }

    /// The histograms with their names.
    pub fn named(&self) -> [(&'static str, &Waits); 3] {
        [
            ("eager", &self.eager),
            ("rendezvous", &self.rendezvous),
            ("outages", &self.outages),
        ]
    }
}

impl Words for Waits {
    fn put(&self, to: &mut impl FnMut(u64)) {
        self.0.iter().for_each(|&count| to(count));
    }
    fn take(from: &mut Source<'_>) -> Waits {
        let mut waits = Waits([0; WAIT_CLASSES]);
        waits.0.fill_with(|| u64::take(from));
        waits
    }
}
