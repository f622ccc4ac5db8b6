//! Incoming messages of a node, of all its peers: what has arrived, and what it waits for.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::slab::{Key, Slab};
use crate::base::types::PeerId;
use crate::incoming::any_source::AnySource;
use crate::incoming::grants::Grants;
use crate::incoming::receives::Receives;
use crate::state::advertisement::FirstAdvertisement;
use crate::state::completion_order::CompletionOrder;
use crate::state::conn::Conn;
use crate::state::context::Context;
use crate::state::transfer::Inbound;
use core::ops::Range;

/// All incoming messages and local reads, the receives to be matched, and the grants.
pub(crate) struct Incoming {
    pub(super) inbounds: Slab<Inbound>,
    pub(super) receives: Receives,
    pub(super) any_source: AnySource,
    pub(super) completion_order: CompletionOrder,
    pub(super) grants: Grants,
    /// The ADVERTISEMENT read last, until its RTS is read.
    pub(super) advertisement_in: Option<FirstAdvertisement>,
}

impl Incoming {
    /// An empty set; at most `budget` bytes may be granted at once.
    pub(crate) fn new(budget: u64) -> Incoming {
        Incoming {
            inbounds: Slab::new(),
            receives: Receives::default(),
            any_source: AnySource::default(),
            completion_order: CompletionOrder::default(),
            grants: Grants::new(budget),
            advertisement_in: None,
        }
    }

    /// Number of messages and reads that have not ended.
    pub(crate) fn len(&self) -> usize {
        self.inbounds.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Inbound> {
        self.inbounds.iter().map(|(_, inbound)| inbound)
    }

    /// Bytes of heap in use.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.inbounds.heap_bytes()
    }

    #[inline]
    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Distributes grants while the budget lasts.
    pub(crate) fn pump_grants(&mut self, ctx: &mut Context<'_>, now: u64) {
        self.grants.pump(&mut self.inbounds, ctx, now);
    }

    /// Posted receives.
    #[inline]
    pub(crate) fn receives(&self) -> &Receives {
        &self.receives
    }

    #[inline]
    pub(crate) fn receives_mut(&mut self) -> &mut Receives {
        &mut self.receives
    }

    /// Watch over peers for receives from any source.
    #[inline]
    pub(crate) fn any_source(&self) -> &AnySource {
        &self.any_source
    }

    #[inline]
    pub(crate) fn any_source_mut(&mut self) -> &mut AnySource {
        &mut self.any_source
    }

    /// Handles a peer's death: waiting receives from any source fail; if there are none, the next
    /// one posted fails. (The death of a stranger fails none, since no operation can name a
    /// stranger.)
    pub(crate) fn note_death(&mut self, ctx: &mut Context<'_>, dead: PeerId) {
        let named = ctx.directory.is_named(dead) || ctx.cfg.errs(Mutation::MournStrangers);
        if !named {
            return;
        }
        self.any_source
            .note_death(ctx.cfg, &mut self.receives, ctx.events);
    }

    /// Returns whether a receive from any source waits without keepalive probes (an invariant
    /// check).
    pub(crate) fn forgets_any_source(&self, cfg: &Config) -> bool {
        self.any_source.is_forgotten(cfg, &self.receives)
    }

    /// The peers to probe now for receives from any source, out of `peers` peers.
    pub(crate) fn peers_to_ask(&mut self, peers: usize) -> Option<Range<usize>> {
        self.any_source.batch(peers, &self.receives)
    }

    /// The inbound message with this key.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Inbound> {
        self.inbounds.get_mut(key)
    }

    /// Returns whether a message of the peer has not ended.
    pub(crate) fn has_of(&self, peer: PeerId) -> bool {
        self.iter().any(|inbound| inbound.peer == peer)
    }

    /// All messages of the peer below this number arrived completely. (Remote writes are excluded:
    /// those without a known result fail.)
    pub(crate) fn arrived(&self, conn: &Conn) -> u32 {
        let whole = |i: &Inbound| i.complete() || i.is_put();
        let unfinished = |key: &Key| !self.inbounds.get(*key).is_some_and(whole);
        let mut inbound = conn.rx.inbound.iter();
        let first = inbound.find(|(_, key)| unfinished(key));
        first.map_or(conn.rx.next_match, |(&n, _)| n.min(conn.rx.next_match)) as u32
    }
}
