//! The end of a peer that will send nothing more: its incomplete messages, local reads from it, and
//! receives that name it fail.

use crate::base::mutation::Mutation;
use crate::base::types::{Event, PeerId};
use crate::incoming::messages::Incoming;
use crate::state::context::Context;
use crate::state::matching::MatchedReceive;
use crate::state::transfer::InboundState;
use alloc::vec::Vec;

impl Incoming {
    /// Ends every operation that waits for messages of the peer.
    pub(crate) fn end_peer(&mut self, ctx: &mut Context<'_>, peer: PeerId, now: u64) {
        let mut again = self.fail_inbound(ctx, peer);
        again.sort_unstable_by_key(|matched| matched.posted.order);
        for matched in again {
            self.receive_again(ctx, &matched, now);
        }
        // The grants to the dead peer no longer use the budget: other peers get it.
        self.pump_grants(ctx, now);
        while let Some(posted) = self.receives.take_directed(peer) {
            if ctx.cfg.errs(Mutation::ForgetReceives) {
                continue;
            }
            let handle = posted.spec.handle;
            self.receives.end_multi(handle);
            ctx.events.push_back(Event::RecvFailed { handle });
        }
    }

    /// Ends every incomplete message of a dead peer; complete ones can still be received. Returns
    /// the receives that such messages of a stranger had matched.
    fn fail_inbound(&mut self, ctx: &mut Context<'_>, peer: PeerId) -> Vec<MatchedReceive> {
        let mut again = Vec::new();
        let keys: Vec<_> = self
            .inbounds
            .iter()
            // A message behind a gap in the order can never be matched.
            .filter(|(_, i)| {
                let over = matches!(i.state, InboundState::Held | InboundState::Refused);
                i.peer == peer && (!i.complete() || over)
            })
            .map(|(k, _)| k)
            .collect();
        for key in keys {
            let Some(inbound) = self.inbounds.get_mut(key) else {
                continue;
            };
            let (state, bounced, reply) = (inbound.state, inbound.bounced, inbound.reply);
            let matched = inbound.matched.take().filter(|_| !ctx.is_admitted(peer));
            self.receives.remove_unexpected(key);
            self.drop_inbound(ctx, key);
            if let InboundState::Bound { handle, .. } = state {
                if let Some(matched) = matched {
                    again.push(*matched);
                } else if reply {
                    ctx.events.push_back(Event::ReadLost { handle });
                } else if self.receives.leave(handle) {
                    ctx.events.push_back(Event::RecvFailed { handle });
                }
            }
            if bounced {
                ctx.events.push_back(Event::BounceFree {
                    inbound: key.name(),
                });
            }
        }
        if let Some(conn) = ctx.conn_mut(peer) {
            conn.rx.inbound.clear();
            conn.rx.pending_reads.clear();
        }
        self.finish_held(ctx, peer);
        again
    }
}
