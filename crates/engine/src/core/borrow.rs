//! Eager sends that leave from their caller's memory, and their early end (docs/design/eager.md).

use crate::api::{Completion, IoVec, SendReq, BORROW_ABOVE};
use crate::core::submit::{gather, total};
use crate::core::Core;
use crate::memory::op_table::Pieces;
use crate::memory::sums::Owner;
use crate::platform::system::System;
use crate::state::regions::Operations;
use marline_proto::Mutation;

/// Sends of a burst that are copied, as a multiple of the sends that leave immediately: their
/// callers may wait for each of them.
const COPIED_FIRST: u32 = 4;
/// Time of polling without any borrowed send ending, after which the receiver is probably
/// computing.
const QUIET_NS: u64 = 500_000;
/// Time of polling after which a borrowed send is copied regardless of others.
const BORROWED_NS: u64 = 4_000_000;
/// Most bytes copied per poll.
const COPY_MAX: usize = 256 << 10;

impl<S: System> Core<S> {
    /// True if this send may borrow: its caller polls for its completion, and enough other sends of
    /// its burst precede it (see [`COPIED_FIRST`]).
    pub(crate) fn may_borrow(&self, req: &SendReq<'_>, len: usize) -> bool {
        self.cfg.borrow
            && len > BORROW_ABOVE
            && req.flags.completion
            && !req.flags.inject
            && (self.coalescer).follows(self.cfg.aggregate_after.saturating_mul(COPIED_FIRST))
    }

    /// Copies borrowed sends that have waited too long for their peers into the log, which ends
    /// them.
    pub(crate) fn log_borrowed(&mut self, now: u64) {
        if self.ops.borrowed.first().is_none() {
            return;
        }
        self.ops.borrowed.polled(now);
        let quiet = self.ops.borrowed.quiet_ns(now) >= QUIET_NS;
        let mut copied = 0;
        while let Some(first) = self.ops.borrowed.first() {
            if self.ops.still_borrows(first.handle, first.number) {
                let age = now.saturating_sub(first.since_ns);
                let due = age >= BORROWED_NS || (quiet && age >= QUIET_NS);
                if !due || copied >= COPY_MAX {
                    return;
                }
                let Some(len) = self.give_back(first.handle) else {
                    return;
                };
                copied += len;
            }
            self.ops.borrowed.pop();
        }
    }

    /// Copies a send into the log and completes it. Returns the number of bytes copied; `None`: the
    /// log is full, or a rail still reads the memory.
    fn give_back(&mut self, handle: u32) -> Option<usize> {
        let op = self.ops.sends.get(handle)?;
        let len = total(op.pieces.as_slice());
        if op.writes > 0 || !self.logs(len) {
            return None;
        }
        self.rails.sums.withdraw(|of| of == Owner::Send(handle));
        self.close_source(handle);
        let mut buffer = self.buffers.pool.take(len, false)?;
        let op = self.ops.sends.get_mut(handle)?;
        if !self.cfg.proto.errs(Mutation::ForgetBorrowed) {
            gather(op.pieces.as_slice(), buffer.bytes());
        }
        let base = buffer.bytes().as_mut_ptr();
        op.pieces = Pieces::new(&[IoVec { base, len }]);
        op.log = Some(buffer);
        op.borrowed = 0;
        let (cq, context, flags) = (op.on_delivery.take(), op.context, op.flags);
        let entry = Completion {
            context,
            flags,
            ..Completion::empty()
        };
        self.complete(cq, entry);
        Some(len)
    }
}

impl Operations {
    /// Adds a borrowed send to the list, if it has a number. Drops ended sends at the front, since
    /// an application may post for long without a poll.
    #[inline]
    pub(crate) fn borrow(&mut self, handle: u32, number: u64) {
        if number == 0 {
            return;
        }
        while let Some(first) = self.borrowed.first() {
            if self.still_borrows(first.handle, first.number) {
                break;
            }
            self.borrowed.pop();
        }
        self.borrowed.push(handle, number);
    }

    fn still_borrows(&self, handle: u32, number: u64) -> bool {
        (self.sends.get(handle)).is_some_and(|op| op.borrowed == number && op.ended.is_none())
    }
}
