//! Turns the nodes' events into completions and log lines.

use crate::api::{flag, Completion, Counted, EpId, OpError, ADDR_UNSPEC};
use crate::core::Core;
use crate::memory::copy::copy;
use crate::memory::op_table::{Role, SendOp};
use crate::memory::sums::Owner;
use crate::memory::visible::show;
use crate::platform::system::{System, Watch};
use marline_proto::{Event, Mutation, PeerId, PutEnd};
use marline_wire::{MsgHead, FLAG_CQ_DATA, FLAG_PART};

impl<S: System> Core<S> {
    /// Handles all pending events of the nodes. Call this after any call that may have caused
    /// events.
    pub fn settle(&mut self) {
        for index in 0..self.dir.eps.len() {
            while let Some(endpoint) = self.dir.eps[index].as_mut() {
                let Some(event) = endpoint.node.poll_event() else {
                    break;
                };
                self.watch.event(&endpoint.node, &event);
                let ep = EpId(index as u32);
                match event {
                    Event::SendDone { handle, ok } => {
                        let end = if ok { Ok(()) } else { Err(OpError::PeerDead) };
                        self.send_done(handle, end);
                    }
                    Event::RecvDone {
                        handle,
                        peer,
                        head,
                        offset,
                        len,
                        bounce,
                        last,
                    } => self.recv_done(ep, handle, peer, &head, (offset, len), bounce, last),
                    event => self.on_event(ep, event),
                }
            }
        }
    }

    /// Handles an event that is not the end of a message.
    fn on_event(&mut self, ep: EpId, event: Event) {
        match event {
            Event::SendDone { .. } | Event::RecvDone { .. } => {} // in `settle`
            Event::Copy {
                send,
                recv,
                offset,
                len,
            } => self.copy_loopback(send, recv, offset, len as usize),
            Event::PutEnd(end) => self.show_end(ep, &end),
            Event::RecvFailed { handle } => self.recv_failed(handle, OpError::PeerDead),
            Event::RecvReleased { handle } => self.recv_released(handle),
            Event::BounceFree { inbound } => self.buffers.free_bounce((ep.0, inbound)),
            Event::RegistrationWanted {
                inbound,
                handle,
                offset,
                len,
                rails,
            } => self.register_rkeys(ep, (inbound, handle), (offset, len), rails),
            Event::PullWanted { .. } => self.pull(ep, &event),
            Event::Pulled { .. } => {}
            Event::Deregister { inbound } => self.deregister(ep, inbound),
            Event::PeerDead { peer, .. } => {
                self.record_event(ep, &event);
                self.forget_outages(ep, peer);
                self.say_dead(ep, &event);
            }
            Event::PathChanged { .. }
            | Event::PathSuspect { .. }
            | Event::PathRerouted { .. }
            | Event::Resumed { .. }
            | Event::PathCorrupts { .. }
            | Event::PathShrank { .. } => self.on_path_event(ep, &event),
            Event::AlgorithmAgreed {
                peer,
                preference,
                agreed,
            } => {
                self.say_agreed(ep, peer, preference, agreed);
            }
            Event::PeerMet { peer } => {
                self.dir.addr_of(ep, peer);
            }
            Event::PeerLeft { peer } => self.peer_left(ep, peer),
            Event::UnknownRailKind { kind } => self.say_unknown_kind(kind),
            Event::PeerMismatch { .. }
            | Event::PeerUnreachable { .. }
            | Event::PeerVersions { .. } => {
                self.say_refused_peer(ep, &event);
            }
            Event::RpcArrived { peer, head, bounce } => self.on_rpc(ep, peer, &head, bounce),
            Event::PeerOver { peer } => self.fail_rpcs(ep, peer),
            Event::ReadDone { .. }
            | Event::ReadLost { .. }
            | Event::ReadAsked { .. }
            | Event::PutAsked { .. }
            | Event::PutRefused { .. } => self.on_remote_event(ep, event),
        }
    }

    /// Records and logs an event of a path.
    fn on_path_event(&mut self, ep: EpId, event: &Event) {
        if !matches!(event, Event::PathCorrupts { .. }) {
            self.record_event(ep, event);
        }
        match event {
            Event::PathChanged { .. } => self.say_path(ep, event),
            Event::PathCorrupts { .. } => self.say_corrupt(ep, event),
            Event::PathShrank { .. } => self.say_shrank(ep, event),
            _ => {}
        }
    }

    pub(crate) fn send_done(&mut self, handle: u32, end: Result<(), OpError>) {
        let waits = !self.cfg.proto.errs(Mutation::ReadLate);
        if self.cfg.proto.errs(Mutation::CloseEarly) {
            self.close_source(handle);
        }
        let written = (self.ops.sends.get_mut(handle)).filter(|op| waits && op.writes > 0);
        if let Some(op) = written {
            op.ended = Some(end);
            return self.copy_writes(handle);
        }
        self.rails.sums.withdraw(|of| of == Owner::Send(handle));
        self.close_advertisement(handle);
        self.close_source(handle);
        let Some(mut op) = self.ops.sends.remove(handle) else {
            return;
        };
        self.ops.borrowed.ended |= op.borrowed != 0;
        if let Some(served) = op.serves {
            self.ops.leave_region(served.region);
            if end.is_ok() && !served.part {
                self.count(op.ep, Counted::RemoteReads, true);
                self.count_region(served.region, [true, false]);
            }
        }
        if let Some(buffer) = op.log.take() {
            self.buffers.pool.give(buffer);
        }
        let put = op.flags & flag::RMA != 0;
        let end = match put {
            true => self.put_left(handle, &op, end),
            false => Some(end),
        };
        let Some(end) = end else {
            return;
        };
        self.watch.sent(op.context, end);
        if put {
            self.count(op.ep, Counted::Writes, end.is_ok());
        } else if self.counts_messages && op.flags & flag::SEND != 0 {
            self.count(op.ep, Counted::Sends, end.is_ok());
        }
        // A failed remote write is always reported.
        let always = end.is_err() && put;
        let cq = match always {
            true => self.dir.ep(op.ep).and_then(|e| e.tx_cq),
            false => op.on_delivery,
        };
        if cq.is_some() {
            let error = end.err();
            let (context, flags) = (op.context, op.flags);
            let entry = Completion {
                context,
                flags,
                error,
                ..Completion::empty()
            };
            self.complete(cq, entry);
        }
    }

    /// Ends a long remote write's use of its caller's memory. Returns the write's result; `None`:
    /// the write is a part of an operation that has not ended.
    fn put_left(
        &mut self,
        handle: u32,
        op: &SendOp,
        end: Result<(), OpError>,
    ) -> Option<Result<(), OpError>> {
        if let Some(endpoint) = self.dir.ep(op.ep) {
            endpoint.remote_open = endpoint.remote_open.saturating_sub(1);
            self.answered |= endpoint.remote_open == 0;
        }
        match self.rpcs.puts.remove(&handle) {
            Some(whole) => self.part_over(whole, end, (op.ep, op.context, op.flags)),
            None => Some(end),
        }
    }

    #[allow(clippy::too_many_arguments)] // the fields of one event
    fn recv_done(
        &mut self,
        ep: EpId,
        handle: u32,
        peer: PeerId,
        head: &MsgHead,
        (offset, len): (u64, u64),
        bounce: Option<u64>,
        last: bool,
    ) {
        let put = self.ops.recvs.get(handle).map(|op| op.role);
        if let Some(Role::Put(region, _)) = put {
            if let Some(inbound) = bounce {
                self.show_bounced(ep, inbound, (handle, offset, len as usize));
            }
            let part = head.flags & FLAG_PART != 0;
            return self.put_came((ep, peer), handle, region, part);
        }
        if let Some(inbound) = bounce {
            self.copy_bounced(ep, inbound, handle, offset, len as usize);
        }
        let source = self.dir.addr_of(ep, peer);
        let Some(op) = self.ops.recvs.get(handle) else {
            return;
        };
        let kind = if op.tagged { flag::TAGGED } else { flag::MSG };
        let mut entry = Completion {
            context: op.context,
            flags: flag::RECV | kind,
            len: len as usize,
            buf: op.pieces.base().wrapping_add(offset as usize),
            data: head.data,
            tag: head.tag,
            source,
            error: None,
            olen: 0,
        };
        if head.flags & FLAG_CQ_DATA != 0 {
            entry.flags |= flag::REMOTE_CQ_DATA;
        }
        let cancelled = op.cancelled;
        if op.options.multi_recv && last && !cancelled {
            entry.flags |= flag::MULTI_RECV;
        }
        if head.total > len {
            entry.error = Some(OpError::Truncated);
            entry.olen = (head.total - len) as usize;
        }
        let wanted = op.options.completion || entry.error.is_some();
        if last && !cancelled {
            self.ops.recvs.remove(handle);
        }
        if self.counts_messages {
            self.count(ep, Counted::Receives, entry.error.is_none());
        }
        if wanted {
            if source == ADDR_UNSPEC {
                self.dir.report_unknown_source(ep, peer, &mut entry);
            }
            let cq = self.dir.ep(ep).and_then(|e| e.rx_cq);
            self.complete(cq, entry);
        }
        if last && cancelled {
            self.recv_failed(handle, OpError::Cancelled);
        }
    }

    /// Ends a remote write of a peer, or a part of one, whose bytes are in their place.
    fn put_came(&mut self, (ep, peer): (EpId, PeerId), handle: u32, region: u64, part: bool) {
        self.ops.recvs.remove(handle);
        match part {
            true => self.ops.part_came(region, (ep.0, peer.0, false)),
            false => {
                self.count(ep, Counted::RemoteWrites, true);
                self.count_region(region, [false, true]);
            }
        }
        self.ops.leave_region(region);
    }

    /// Copies a loopback message, or a loopback read.
    fn copy_loopback(&mut self, send: u32, recv: u32, offset: u64, len: usize) {
        if let (Some(from), Some(to)) = (self.ops.sends.get(send), self.ops.recvs.get(recv)) {
            copy(&from.pieces, &to.pieces, offset, len);
        }
    }

    /// Stores the end of a remote write, which arrived before the rest.
    fn show_end(&mut self, ep: EpId, end: &PutEnd) {
        let place = (end.handle, end.offset, end.len as usize);
        self.show_bounced(ep, end.inbound, place);
    }

    /// Stores a bounce buffer's first bytes in memory that its program sees.
    fn show_bounced(&mut self, ep: EpId, inbound: u64, (handle, offset, len): (u32, u64, usize)) {
        let Some(mut buffer) = self.buffers.bounces.remove(&(ep.0, inbound)) else {
            return;
        };
        if let Some(op) = self.ops.recvs.get(handle) {
            show(&op.pieces, offset, &buffer.bytes()[..len], true);
        }
        self.buffers.pool.give(buffer);
    }

    /// Copies an unexpected message from its bounce buffer to the receive that matched it.
    fn copy_bounced(&mut self, ep: EpId, inbound: u64, handle: u32, offset: u64, len: usize) {
        let Some(mut buffer) = self.buffers.bounces.remove(&(ep.0, inbound)) else {
            return;
        };
        if let Some(op) = self.ops.recvs.get(handle) {
            let mut at = 0;
            op.pieces.for_range(offset, len, |base, n| {
                // SAFETY: posted user memory; the bounce buffer holds at least `len` bytes.
                unsafe {
                    std::ptr::copy_nonoverlapping(buffer.bytes()[at..at + n].as_ptr(), base, n);
                }
                at += n;
            });
        }
        self.counters.process.unexpected += 1;
        self.buffers.pool.give(buffer);
    }

    /// Ends a posted receive with an error completion.
    pub(crate) fn recv_failed(&mut self, handle: u32, error: OpError) {
        let Some(op) = self.ops.recvs.remove(handle) else {
            return;
        };
        if let Role::Put(region, _) = op.role {
            return self.ops.leave_region(region);
        }
        let kind = if op.tagged { flag::TAGGED } else { flag::MSG };
        let multi = if op.options.multi_recv {
            flag::MULTI_RECV
        } else {
            0
        };
        let entry = Completion {
            context: op.context,
            flags: flag::RECV | kind | multi,
            error: Some(error),
            ..Completion::empty()
        };
        self.count(op.ep, Counted::Receives, false);
        let cq = self.dir.ep(op.ep).and_then(|e| e.rx_cq);
        self.complete(cq, entry);
    }

    /// Ends a multi-receive without a message: a completion without data gives its buffer back.
    fn recv_released(&mut self, handle: u32) {
        let cancelled = self.ops.recvs.get(handle).map(|op| op.cancelled);
        if cancelled == Some(true) {
            return self.recv_failed(handle, OpError::Cancelled);
        }
        let op = self.ops.recvs.remove(handle);
        let Some(op) = op.filter(|op| op.options.completion) else {
            return;
        };
        let entry = Completion {
            context: op.context,
            flags: flag::MULTI_RECV,
            ..Completion::empty()
        };
        let cq = self.dir.ep(op.ep).and_then(|e| e.rx_cq);
        self.complete(cq, entry);
    }

    /// Counts a successful operation that read or wrote a region.
    pub(crate) fn count_region(&mut self, key: u64, does: [bool; 2]) {
        self.ops.count(key, does);
        if self.cfg.proto.errs(Mutation::CountTwice) {
            self.ops.count(key, does);
        }
    }

    /// Counts a completion at an endpoint.
    pub(crate) fn count(&mut self, ep: EpId, what: Counted, ok: bool) {
        if let Some(endpoint) = self.dir.ep(ep) {
            endpoint.count(what, ok);
        }
    }
}
