//! Acks that are owed to the peer on a path: which packets arrived, since when an ack waits, and
//! whether the ack is urgent or repeats the acks of other paths.

use crate::state::recv_window::RecvWindow;
use marline_wire::Ack;

/// The acks owed for packets of a path.
#[derive(Debug, Default)]
pub struct AcksOwed {
    window: RecvWindow,
    since_ns: u64,
    urgent: bool,
    /// The path must repeat the acks of other paths.
    echo: bool,
}

impl AcksOwed {
    /// Bytes of heap in use.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.window.heap_bytes()
    }

    /// True if the packet arrived before, or is too old to tell.
    #[inline]
    pub(crate) fn is_duplicate(&self, number: u64) -> bool {
        self.window.is_duplicate(number)
    }

    /// True if the sender can have reached this number; see [`RecvWindow::is_in_reach`].
    #[inline]
    pub(crate) fn is_in_reach(&self, number: u64, now: u64, opened_ns: u64) -> bool {
        self.window.is_in_reach(number, now, opened_ns)
    }

    /// One above the highest number that arrived.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.window.end()
    }

    /// Records an arrived packet. `eliciting`: the packet requests an ack.
    #[inline]
    pub(crate) fn on_packet(&mut self, number: u64, eliciting: bool, now: u64) {
        self.begin(now);
        self.window.record(number, eliciting, now);
    }

    /// Records the next `count` packets after the highest that arrived.
    pub(crate) fn on_run(&mut self, count: u32, eliciting: bool, now: u64) {
        self.begin(now);
        self.window.record_run(count, eliciting, now);
    }

    #[inline]
    fn begin(&mut self, now: u64) {
        if self.window.fresh() == 0 {
            self.since_ns = now;
        }
    }

    /// Notes whether the sender retains the data of a packet that arrived.
    #[inline]
    pub(crate) fn note_native(&mut self, native: bool) {
        self.window.native |= native;
    }

    /// True if packets wait for an ack.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.window.fresh() > 0
    }

    /// Packets that wait for an ack.
    #[inline]
    pub(crate) fn fresh(&self) -> u32 {
        self.window.fresh()
    }

    /// True if some of the packets to acknowledge were not acknowledged before.
    pub(crate) fn has_news(&self) -> bool {
        self.window.has_news()
    }

    /// True if an ack has waited `delay_ns`.
    #[inline]
    pub(crate) fn is_due(&self, now: u64, delay_ns: u64) -> bool {
        self.any() && now >= self.due_ns(delay_ns)
    }

    /// When an ack has waited `delay_ns`.
    #[inline]
    pub(crate) fn due_ns(&self, delay_ns: u64) -> u64 {
        self.since_ns + delay_ns
    }

    /// How long the acks have waited.
    #[inline]
    pub(crate) fn waited_ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.since_ns)
    }

    /// The next ack is urgent.
    #[inline]
    pub(crate) fn make_urgent(&mut self) {
        self.urgent = true;
    }

    /// True if the next ack is urgent.
    #[inline]
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Ends the urgency if nothing is left to acknowledge.
    #[inline]
    pub(crate) fn on_packet_built(&mut self) {
        self.urgent &= self.any();
    }

    /// Makes the next ack name as many packets as it can, even if no new packet arrived.
    pub(crate) fn renew(&mut self) {
        self.window.renew();
    }

    /// Renews the acks, whose wait begins now.
    pub(crate) fn renew_now(&mut self, now: u64) {
        self.window.renew();
        self.since_ns = now;
    }

    /// After the path failed: acknowledges the peer's native packets on another path, since the
    /// peer cannot retransmit them.
    pub(crate) fn renew_native(&mut self, now: u64) {
        if self.window.native {
            self.renew_now(now);
            self.make_urgent();
        }
    }

    /// The next ack without its masks, and the number of masks; `None` if no packet waits for an
    /// ack. Ends the urgency.
    #[inline]
    pub(crate) fn take_head(&mut self, path: u16, now: u64) -> Option<(Ack<()>, u8)> {
        let head = self.window.take_head(path, now)?;
        self.urgent = false;
        Some(head)
    }

    /// Mask `m` of an ack.
    #[inline]
    pub(crate) fn mask(&self, ack: &Ack<()>, m: usize) -> u64 {
        self.window.mask(ack, m)
    }

    /// Bytes of the next ack in a packet.
    pub(crate) fn ack_len(&self) -> usize {
        self.window.ack_len()
    }

    /// True if the path must repeat the acks of other paths.
    #[inline]
    pub(crate) fn echoes(&self) -> bool {
        self.echo
    }

    /// Sets whether the path must repeat the acks of other paths.
    pub(crate) fn set_echo(&mut self, echo: bool) {
        self.echo = echo;
    }

    /// Takes the request to repeat the acks of other paths.
    #[inline]
    pub(crate) fn take_echo(&mut self) -> bool {
        core::mem::take(&mut self.echo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY_NS: u64 = 100;

    #[test]
    fn the_wait_begins_with_the_first_packet() {
        let mut acks = AcksOwed::default();
        assert!(!acks.is_due(u64::MAX / 2, DELAY_NS));
        acks.on_packet(0, true, 1_000);
        acks.on_packet(1, true, 1_050);
        assert_eq!((acks.fresh(), acks.waited_ns(1_060)), (2, 60));
        assert!(!acks.is_due(1_099, DELAY_NS) && acks.is_due(1_100, DELAY_NS));
        assert!(acks.is_duplicate(1) && !acks.is_duplicate(2));
        assert_eq!(acks.end(), 2);
    }

    #[test]
    fn a_packet_that_requests_no_ack_owes_none() {
        let mut acks = AcksOwed::default();
        acks.on_packet(0, false, 1_000);
        acks.on_run(3, false, 1_000);
        assert!(!acks.any() && !acks.is_due(2_000, DELAY_NS));
        assert_eq!(acks.end(), 4);
    }

    #[test]
    fn an_ack_that_leaves_ends_the_urgency() {
        let mut acks = AcksOwed::default();
        acks.on_run(3, true, 1_000);
        acks.make_urgent();
        assert!(acks.is_urgent());
        assert!(acks.is_urgent());
        assert!(acks.take_head(1, 1_000).is_some());
        assert!(!acks.is_urgent() && !acks.any());
        assert!(acks.take_head(1, 1_000).is_none());
    }

    #[test]
    fn urgency_without_packets_ends_with_the_next_packet_built() {
        let mut acks = AcksOwed::default();
        acks.make_urgent();
        acks.on_packet_built();
        assert!(!acks.is_urgent());
        acks.on_packet(0, true, 1);
        acks.make_urgent();
        acks.on_packet_built();
        assert!(acks.is_urgent());
    }

    #[test]
    fn acks_of_packets_that_cannot_be_retransmitted_are_repeated_elsewhere() {
        let mut acks = AcksOwed::default();
        acks.on_packet(0, true, 1);
        acks.take_head(1, 1);
        acks.renew_native(5);
        assert!(!acks.any() && !acks.is_urgent());
        acks.note_native(true);
        acks.note_native(false);
        acks.renew_native(5);
        assert!(acks.any() && acks.is_urgent() && !acks.has_news());
        assert_eq!(acks.waited_ns(6), 1);
    }

    #[test]
    fn an_echo_is_taken_once() {
        let mut acks = AcksOwed::default();
        acks.set_echo(true);
        assert!(acks.echoes() && acks.take_echo() && !acks.take_echo());
    }
}
