//! RDMA writes into peer memory.

use super::{outcome, Posted, VerbsTx};
use crate::sys::verbs::{Operation, QueueType, Request};
use crate::verbs::held::Waiting;
use crate::verbs::immediate;
use crate::verbs::send_queue::Read;
use crate::{LinkId, Piece, RemoteWrite, SendOutcome, Staging, TxBuffers, Write};

impl VerbsTx {
    /// Assigns immediates to the writes of a call, first cutting writes to the MTU if required;
    /// returns the operation that sends the write notification.
    fn mark(&mut self, requests: &mut Vec<(Request, Operation)>) -> Operation {
        if self.kind != QueueType::Uc {
            return Operation::Send; // ordered: its arrival implies that all earlier writes landed
        }
        if self.cuts() {
            let mtu = self.shared.port.attr.mtu();
            *requests = cut(requests, mtu, self.links.depth());
        }
        let call = self.writes.next_call();
        for (which, (_, operation)) in requests.iter_mut().enumerate() {
            if let Operation::Write { immediate, .. } = operation {
                *immediate = Some(immediate::of_write(call, which));
            }
        }
        Operation::SendWith(immediate::of_packet(call, requests.len()))
    }

    /// Queues events of memory registrations.
    pub(super) fn report_registered(&mut self) {
        self.links.events.extend(self.writes.events());
    }

    /// Writes if the link has a connection; a lost write counts as complete. `copied`: from a
    /// bounce buffer.
    pub(super) fn write_now(
        &mut self,
        link: LinkId,
        read: Read,
        (write, packet): (&Write<'_>, &[u8]),
        copied: bool,
    ) -> Posted {
        if !self.links.writes(link) {
            if self.links.holds(link) {
                return Posted::Waits;
            }
            self.links.over.push(read);
            self.free();
            return Posted::Lost;
        }
        let Some(buffer) = self.lend() else {
            return Posted::NoRoom;
        };
        self.buffer(buffer)[..packet.len()].copy_from_slice(packet);
        let opened = self.writes.open(&self.shared.domain, write, copied);
        self.report_registered();
        let (source, mut requests) = match opened {
            Ok(Some(opened)) => opened,
            Ok(None) => {
                self.buffers.free(buffer);
                return Posted::NoRoom;
            }
            Err(errno) => {
                // The link must go down: on it a later notification would cover a write that never
                // left.
                self.buffers.free(buffer);
                self.links.failed_link(link, errno);
                self.links.over.push(read);
                self.free();
                return Posted::Lost;
            }
        };
        let signalled = self.mark(&mut requests);
        let count = requests.len() + 1;
        let reads = [Read::Buffer(buffer), read];
        let posted = self.post(link, count, &reads, |buffers, at| match requests.get(at) {
            Some(request) => *request,
            None => (buffers.request(buffer, 0, packet.len()), signalled),
        });
        match posted {
            Posted::Taken => {
                self.buffers.in_flight(buffer);
                self.writes.posted(read, source);
                self.report_registered();
            }
            Posted::NoRoom | Posted::Waits => {
                self.buffers.free(buffer);
                self.writes.unused(source);
            }
            Posted::Lost | Posted::Failed(_) => {
                self.buffers.free(buffer);
                self.links.over.push(read);
                self.free();
            }
        }
        posted
    }

    /// Posts a write that a link held.
    pub(super) fn write_held(
        &mut self,
        link: LinkId,
        (key, offset): (u64, u64),
        bytes: &[u8],
        packet: &[u8],
    ) -> Posted {
        let piece = Piece {
            base: bytes.as_ptr(),
            len: bytes.len(),
        };
        let write = Write {
            key,
            offset,
            pieces: &[piece],
            token: 0,
            source: None,
        };
        let read = Read::Copy(self.writes.next_copy());
        self.write_now(link, read, (&write, packet), true)
    }
}

/// Cuts the writes into parts of up to `len` bytes, or larger parts if the queue of `depth` could
/// not hold them all and the packet.
fn cut(requests: &[(Request, Operation)], len: usize, depth: usize) -> Vec<(Request, Operation)> {
    let parts = |len: usize| -> usize { requests.iter().map(|r| r.0.len.div_ceil(len)).sum() };
    let mut len = len.max(1);
    while parts(len) >= depth && parts(len) > requests.len() {
        len *= 2;
    }
    let part = |(request, operation): &(Request, Operation), from: usize| {
        let mut operation = *operation;
        if let Operation::Write { address, .. } = &mut operation {
            *address += from as u64;
        }
        let part = Request {
            address: request.address + from as u64,
            len: len.min(request.len - from),
            ..*request
        };
        (part, operation)
    };
    let of = |one: &(Request, Operation)| {
        let from = (0..one.0.len).step_by(len);
        from.map(|from| part(one, from)).collect::<Vec<_>>()
    };
    requests.iter().flat_map(of).collect()
}

impl Staging for VerbsTx {
    fn stage(&mut self, len: usize) -> Option<u64> {
        let stages = self.staged && self.kind != QueueType::Ud;
        stages.then(|| self.writes.stage(&self.shared.domain, len))?
    }

    fn unstage(&self, key: u64, offset: u64, len: usize, to: &mut dyn FnMut(&[u8])) -> bool {
        let bytes = self.writes.staged_bytes(key, offset, len);
        bytes.map(to).is_some()
    }
}

impl RemoteWrite for VerbsTx {
    fn register(&mut self, base: *mut u8, len: usize) -> Option<u64> {
        let connected = self.kind != QueueType::Ud;
        let key = connected.then(|| self.writes.register(&self.shared.domain, base, len))?;
        self.report_registered();
        key
    }

    fn deregister(&mut self, key: u64) {
        self.writes.deregister(key);
    }

    fn write(&mut self, link: LinkId, write: &Write<'_>, packet: &[u8]) -> SendOutcome {
        if let Some(too_big) = self.too_big(packet.len()) {
            return too_big;
        }
        let read = Read::Write(write.token);
        let posted = self.write_now(link, read, (write, packet), self.staged);
        match posted {
            Posted::Waits => {
                let held = self.hold(link, || Waiting::write(write, packet));
                if held == SendOutcome::Sent {
                    self.links.over.push(read); // the held write has a copy
                    self.free();
                }
                held
            }
            posted => outcome(posted),
        }
    }
}
