//! Receives from any source that a message of a stranger has matched: if the stranger dies before
//! the message is there, they are posted again, as if the message had never come. Otherwise one
//! request of a stranger that then is silent would end a receive that the job waits for. (Parts of
//! the lost message may lie in the buffer behind a shorter one.)

use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::base::types::{Event, Source};
use crate::incoming::messages::Incoming;
use crate::incoming::receives::GivenBack;
use crate::state::context::Context;
use crate::state::matching::{MatchedReceive, Posted};
use alloc::boxed::Box;

impl Incoming {
    /// Remembers the receive that a message of a stranger has matched. `stayed`: it is a
    /// multi-receive that stayed posted.
    #[inline]
    pub(super) fn note_matched(
        &mut self,
        ctx: &Context<'_>,
        key: Key,
        posted: &Posted,
        stayed: bool,
    ) {
        if posted.spec.source != Source::Any {
            return; // ends with its source
        }
        let Some(inbound) = self.inbounds.get_mut(key) else {
            return;
        };
        let strange = !ctx.is_admitted(inbound.peer) && !ctx.cfg.errs(Mutation::MournStrangers);
        if strange && inbound.own.is_none() {
            inbound.matched = Some(Box::new(MatchedReceive {
                posted: *posted,
                stayed,
            }));
        }
    }

    /// Posts a receive again whose message will not come, or gives it an unexpected message.
    pub(super) fn receive_again(
        &mut self,
        ctx: &mut Context<'_>,
        matched: &MatchedReceive,
        now_ns: u64,
    ) {
        let posted = &matched.posted;
        let (spec, handle) = (&posted.spec, posted.spec.handle);
        match self.receives.give_back(matched) {
            GivenBack::InUse => {}
            GivenBack::Over => ctx.events.push_back(Event::RecvReleased { handle }),
            GivenBack::Open if spec.multi_min.is_some() => {
                self.receives.post_again(posted);
                self.fill_multi(ctx, spec, now_ns);
            }
            GivenBack::Open => match self.receives.find_unexpected(spec, true) {
                Some(waiting) => self.receive_waiting(ctx, &waiting, posted, now_ns),
                None if self.any_source.await_message(ctx.cfg, spec, now_ns) => {
                    self.receives.post_again(posted);
                }
                None => ctx.events.push_back(Event::RecvFailed { handle }),
            },
        }
    }
}
