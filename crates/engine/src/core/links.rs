//! Links and buffers of the rails, on behalf of the endpoints: which links are made and ended, and in
//! whose buffer packets are built.

use crate::core::remote_write::{Body, Pending};
use crate::core::state::{Core, RailState};
use crate::platform::system::System;
use marline_proto::{LinkAsk, Transmit};
use marline_rails::{BufId, LinkId, Links, RailTx, SendOutcome, TxBuffers};

impl<S: System> Core<S> {
    /// Makes and ends the links that the paths of an endpoint ask for. A rail without connections
    /// does so at once: the packets that are built next can name them.
    #[inline]
    pub(crate) fn settle_links(&mut self, now: u64, index: usize) {
        let endpoint = self.eps.get(index).and_then(Option::as_ref);
        if endpoint.is_some_and(|e| e.node.asks_links()) {
            self.do_links(now, index);
        }
    }

    #[cold]
    fn do_links(&mut self, now: u64, index: usize) {
        while let Some(endpoint) = self.eps[index].as_mut() {
            match endpoint.node.poll_link() {
                Some(LinkAsk::Open {
                    peer,
                    path,
                    rail,
                    to,
                }) => {
                    if let Some(state) = self.rails.get_mut(rail) {
                        let made = state.tx.connect(&to);
                        let node = &mut endpoint.node;
                        node.on_linked(now, peer, path, made.link.0, made.up);
                    }
                }
                Some(LinkAsk::Close { rail, link }) => self.close_link(rail, LinkId(link)),
                None => return,
            }
        }
    }

    /// One user less of a link. What waits for room on it is lost, as the link's number may soon be
    /// another's.
    fn close_link(&mut self, rail: usize, link: LinkId) {
        let Some(state) = self.rails.get_mut(rail) else {
            return;
        };
        let waits = state.pending.as_ref().is_some_and(|p| p.link == link);
        if state.notice.as_ref().is_some_and(|n| n.link() == link) {
            state.notice = None;
        }
        if waits {
            self.drop_pending(rail);
        }
        self.rails[rail].tx.close(link);
    }

    /// Ends all links of an endpoint that closes.
    pub(crate) fn close_links(&mut self, index: usize) {
        let endpoint = self.eps.get_mut(index).and_then(Option::as_mut);
        let links: Vec<_> = endpoint.map_or(Vec::new(), |e| e.node.take_links().collect());
        for (rail, link) in links {
            self.close_link(rail, LinkId(link));
        }
    }

    /// A link carries packets from now on.
    pub(crate) fn on_link_up(&mut self, now: u64, rail: usize, link: LinkId) {
        for endpoint in self.eps.iter_mut().flatten() {
            endpoint.node.on_link_up(now, rail, link.0);
        }
    }

    /// A link is down for good.
    pub(crate) fn on_link_down(&mut self, now: u64, rail: usize, link: LinkId) {
        for endpoint in self.eps.iter_mut().flatten() {
            endpoint.node.on_link_down(now, rail, link.0);
        }
        for index in 0..self.eps.len() {
            self.settle_links(now, index);
        }
    }

    /// The buffer in which the next packet is built, before it is known which rail carries it: that
    /// of the rail that carried the last, if it has one.
    #[inline]
    pub(crate) fn build_buffer(&self) -> Option<(usize, BufId)> {
        let last = self.built_for;
        let buffer = self.rails.get(last).and_then(|rail| rail.buffer);
        buffer.map(|id| (last, id)).or_else(|| self.any_buffer())
    }

    #[cold]
    fn any_buffer(&self) -> Option<(usize, BufId)> {
        let mut rails = self.rails.iter().enumerate();
        rails.find_map(|(at, rail)| Some((at, rail.buffer?)))
    }

    /// The packet just built in the buffer of rail `at` leaves by another: its head goes to a buffer
    /// of that one. `None`: it has none, and the packet is lost.
    #[cold]
    pub(crate) fn move_head(
        &mut self,
        (at, from): (usize, BufId),
        first: &Transmit,
    ) -> Option<BufId> {
        let to = self.rails[first.rail].buffer?;
        let head = self.rails[at].tx.buffer(from)[..first.len.min(first.head_len)].to_vec();
        self.rails[first.rail].tx.buffer(to)[..head.len()].copy_from_slice(&head);
        self.built_for = first.rail;
        Some(to)
    }
}

impl<T: RailTx> RailState<T> {
    /// Sends the first `len` bytes of the buffer in which packets were built. `Err`: there is no
    /// room; the buffer keeps them.
    #[inline]
    pub(crate) fn send_built(&mut self, first: &Transmit, len: usize) -> SendOutcome {
        let Some(buffer) = self.buffer else {
            return SendOutcome::Sent; // built nowhere: lost
        };
        let link = LinkId(first.link);
        let outcome = (self.tx).send_buffer(link, buffer, len, first.len, first.flow);
        if outcome != SendOutcome::Busy {
            self.buffer = self.tx.lend();
        }
        outcome
    }

    /// The packets in the buffer wait for room; what is built next is built in another.
    pub(crate) fn keep_built(&mut self, first: &Transmit, len: usize) -> Option<Pending> {
        let buffer = self.buffer.take()?;
        self.buffer = self.tx.lend();
        Some(Pending {
            link: LinkId(first.link),
            flow: first.flow,
            body: Body::Batch {
                buffer,
                len,
                segment: first.len,
            },
        })
    }
}
