//! Rendezvous by remote read: the sender advertises an rkey of its memory, the receiver reads it.
//!
//! An [`Advertisement`] precedes a request in the same packet: the rkey of the message's memory
//! on one rail, and the sum of the first segment. If the receiver has that rail and room for the
//! whole message, its owner reads it ([`Event::PullWanted`]), segment by segment, and no grant is
//! sent. The sums of the other segments follow once the request is acknowledged, one per packet, so
//! that each packet waits for the computation of one sum only.
//!
//! A segment has arrived when its read is over ([`Node::pull_over`]) and its sum is correct. When
//! all segments have arrived, the message is complete, and an empty grant, retransmitted until
//! acknowledged, tells the sender that nothing more is wanted. Only then does the send end; its
//! memory is closed first.
//!
//! In all other cases (no connection, a read that fails, breaks or does not end, a wrong sum) the
//! receiver ends the reads, reports the segments that it has ([`Have`]), and grants the message;
//! the sender skips those segments. A receiver without it grants all: the first advertisement
//! is not retransmitted with its request.
//!
//! - No byte of a read lands after the message has ended or is granted: its keys end first
//!   ([`Event::Deregister`], [`Memory::deregister`]).
//! - No read byte is overwritten: when a message's keys are sent, the segments already read are
//!   reported with them.
//! - The sender's memory is closed before its send ends, however it ends; later reads are refused.

use crate::base::side_work::AdvertisementOut;
use crate::base::types::{Memory, PeerId};
use crate::node::Node;

/// The sender.
impl Node {
    /// An advertisement in the packet that `poll_transmit` built last; key and sum must be filled
    /// in.
    #[inline]
    pub fn take_advertisement(&mut self) -> Option<AdvertisementOut> {
        self.outgoing.take_advertisement()
    }
}

/// The receiver.
impl Node {
    /// Reports the end of the read of the segment at `at` ([`Event::PullWanted`]). `came`: the read
    /// succeeded; otherwise no byte of it lands any more.
    pub fn pull_over(
        &mut self,
        now_ns: u64,
        segment: (u64, u64),
        came: bool,
        memory: &mut impl Memory,
    ) {
        let (incoming, mut ctx) = self.incoming();
        incoming.pull_over(&mut ctx, now_ns, segment, came, memory);
    }

    /// The sender of an inbound message: its number here, id and epoch.
    pub fn sender_of(&self, inbound: u64) -> Option<(PeerId, u64, u32)> {
        let peer = self.incoming.sender_of(inbound)?;
        let id = self.peer_address(peer)?.id;
        let epoch = self.directory.conn(peer)?.session.epoch?;
        Some((peer, id, epoch))
    }

    /// The first unread range (start, end) of an inbound message at or after `from`.
    pub fn unread(&self, inbound: u64, from: u64) -> Option<(u64, u64)> {
        self.incoming.unread(inbound, from)
    }
}
