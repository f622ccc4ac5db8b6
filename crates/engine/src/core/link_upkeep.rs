//! Links of the rails on behalf of the endpoints: creation, end, and state changes.

use crate::core::Core;
use crate::platform::system::System;
use crate::state::rails::link_of;
use crate::stats::events::Reason;
use marline_proto::{LinkAsk, LinkEnd};
use marline_rails::{DownReason, LinkId, Links};

impl<S: System> Core<S> {
    /// Creates and ends the links that an endpoint's paths request. For rails without connections
    /// this takes effect at once, so that the next packets can use the links.
    #[inline]
    pub(crate) fn settle_links(&mut self, now: u64, index: usize) {
        let endpoint = self.dir.eps.get(index).and_then(Option::as_ref);
        if endpoint.is_some_and(|e| e.node.asks_links()) {
            self.make_links(now, index);
        }
    }

    #[cold]
    fn make_links(&mut self, now: u64, index: usize) {
        while let Some(endpoint) = self.dir.eps[index].as_mut() {
            match endpoint.node.poll_link() {
                Some(LinkAsk::Open {
                    peer,
                    path,
                    rail,
                    to,
                }) => {
                    if let Some(state) = self.rails.list.get_mut(rail) {
                        let made = state.tx.connect(&to);
                        let node = &mut endpoint.node;
                        node.on_linked(now, peer, path, made.link.0, made.up);
                    }
                }
                Some(LinkAsk::Works { rail, link }) => {
                    if let Some(state) = self.rails.list.get_mut(rail) {
                        state.tx.works(LinkId(link));
                    }
                }
                Some(LinkAsk::Silent { rail, link }) => {
                    if let Some(state) = self.rails.list.get_mut(rail) {
                        state.tx.silent(LinkId(link));
                    }
                }
                Some(LinkAsk::Reroute { rail, link }) => {
                    if let Some(state) = self.rails.list.get_mut(rail) {
                        if state.tx.reroute(LinkId(link)) {
                            endpoint.node.on_rerouted(now, rail, link);
                        }
                    }
                }
                Some(LinkAsk::Close { rail, link }) => self.close_link(rail, LinkId(link)),
                None => return,
            }
        }
    }

    /// Removes one user of a link. Drops the user's pending packets, since the link's number may
    /// soon be reused.
    pub(crate) fn close_link(&mut self, rail: usize, link: LinkId) {
        let Some(state) = self.rails.list.get_mut(rail) else {
            return;
        };
        let waits = state
            .pending
            .as_ref()
            .is_some_and(|p| link_of(p.dest).0 == link);
        if state.notification.as_ref().is_some_and(|n| n.link == link) {
            state.notification = None;
        }
        if waits {
            self.drop_pending(rail);
        }
        self.rails.list[rail].tx.close(link);
    }

    /// Ends all links of a closing endpoint.
    pub(crate) fn close_links(&mut self, index: usize) {
        let endpoint = self.dir.eps.get_mut(index).and_then(Option::as_mut);
        let links: Vec<_> = endpoint.map_or(Vec::new(), |e| e.node.take_links().collect());
        for (rail, link) in links {
            self.close_link(rail, LinkId(link));
        }
    }

    /// Notifies nodes that a link carries packets.
    pub(crate) fn on_link_up(&mut self, now: u64, rail: usize, link: LinkId) {
        for node in self.dir.nodes() {
            node.on_link_up(now, rail, link.0);
        }
    }

    /// Notifies nodes that a link has ended.
    pub(crate) fn on_link_down(&mut self, now: u64, rail: usize, link: LinkId, why: DownReason) {
        let end = match why {
            DownReason::Refused => LinkEnd::Refused,
            DownReason::Closed => LinkEnd::Closed,
            DownReason::Unanswered | DownReason::Broken(_) | DownReason::Completion(_) => {
                LinkEnd::Broken
            }
        };
        let word = Reason::end_of_link(why);
        self.rails[rail].counters.icmp_errors += u64::from(end == LinkEnd::Refused);
        for node in self.dir.nodes() {
            node.on_link_down(now, rail, link.0, end, word);
        }
        for index in 0..self.dir.eps.len() {
            self.settle_links(now, index);
        }
    }
}
