//! The two halves of a simulated rail, as an engine has them: what it sends waits in an outbox
//! for the world, what it receives the world has put into an inbox.

use crate::machine::{Machine, Out, TRUESIZE, WIRE_BYTES};
use crate::spare;
use crate::writes::OutWrite;
use marline_rails::{
    Caps, Grants, RailEvent, RailFault, RailRx, RailTx, Received, SendOutcome, Write, Writes,
};
use marline_wire::{DirectHead, RailAddr};
use std::sync::Arc;

/// Sending half of a rail.
pub struct SimTx(Arc<Machine>, usize, (Caps, RailAddr));

impl SimTx {
    /// Of a machine's rail.
    pub(crate) fn new(machine: Arc<Machine>, rail: usize, is: (Caps, RailAddr)) -> SimTx {
        SimTx(machine, rail, is)
    }
}

impl RailTx for SimTx {
    fn caps(&self) -> Caps {
        self.2 .0
    }

    fn local_addr(&self) -> RailAddr {
        self.2 .1
    }

    fn send(&mut self, to: &RailAddr, bytes: &[u8], segment: usize, _flow: u8) -> SendOutcome {
        let at = self.0.peek_now();
        let wires = &mut *self.0.wires();
        let port = &mut wires.ports[self.1];
        if port.broken {
            const ENETDOWN: i32 = 100;
            return SendOutcome::Fault(RailFault::Down(ENETDOWN));
        }
        if let Some(&max) = port.limits.iter().filter(|&&max| segment > max).min() {
            return SendOutcome::TooBig(max);
        }
        if port.blocked_until(at).is_some() {
            return SendOutcome::Busy;
        }
        let frames = bytes.len().div_ceil(segment.max(1)) as u64;
        let wire = bytes.len() as u64 + WIRE_BYTES * frames;
        port.egress_free = port.egress_free.max(at) + port.takes_ns(wire);
        wires.outbox.push(Out {
            rail: self.1,
            to: *to,
            segment: segment.max(1),
            bytes: spare::copy(bytes),
            at,
            write: None,
            direct: false,
        });
        self.0.stir();
        SendOutcome::Sent
    }

    fn write(&mut self, to: &RailAddr, write: &Write<'_>, packet: &[u8]) -> SendOutcome {
        let sent = self.send(to, packet, packet.len(), 0);
        if sent != SendOutcome::Sent {
            return sent;
        }
        let pieces = write.pieces.iter().map(|p| (p.base as usize, p.len));
        let pieces: Vec<(usize, usize)> = pieces.collect();
        let wires = &mut *self.0.wires();
        let port = &mut wires.ports[self.1];
        let (bytes, drained) = (pieces.iter().map(|p| p.1 as u64).sum(), port.drained);
        port.egress_free += port.takes_ns(bytes);
        port.reading.insert(write.token, pieces.clone());
        if let Some(out) = wires.outbox.last_mut() {
            out.write = Some(OutWrite {
                key: write.key,
                offset: write.offset,
                token: write.token,
                pieces,
                drained,
            });
        }
        SendOutcome::Sent
    }

    fn write_direct(
        &mut self,
        to: &RailAddr,
        write: &Write<'_>,
        packet: &[u8],
        segment: usize,
        flow: u8,
    ) -> SendOutcome {
        let head = write.head(packet);
        let mut bytes = spare::copy(&head.write());
        bytes.extend_from_slice(packet);
        bytes.resize(head.lead(), 0);
        write.read(&mut bytes);
        let sent = self.send(to, &bytes, segment, flow);
        spare::give(bytes);
        if let Some(out) = (self.0.wires().outbox.last_mut()).filter(|_| sent == SendOutcome::Sent)
        {
            out.direct = true;
        }
        sent
    }

    fn seal(&mut self, key: u64, offset: u64, len: u64) {
        let landing = self.0.wires().ports[self.1].landing.clone();
        landing.seal(key, offset..offset + len);
    }

    fn landed(&self, key: u64, offset: u64, len: u64) -> bool {
        let landing = self.0.wires().ports[self.1].landing.clone();
        self.caps().writes != Writes::Direct || landing.landed(key, &(offset..offset + len))
    }

    fn grant(&mut self, base: *mut u8, len: usize) -> Option<u64> {
        let port = &mut self.0.wires().ports[self.1];
        if port.grants.len() >= port.grants_max {
            return None;
        }
        port.next_key += 1;
        port.grants.insert(port.next_key, (base as usize, len));
        port.landing.grant(port.next_key, base, len);
        Some(port.next_key)
    }

    fn revoke(&mut self, key: u64) {
        let port = &mut self.0.wires().ports[self.1];
        port.grants.remove(&key);
        port.landing.revoke(key);
    }

    fn drain(&mut self) {
        let port = &mut self.0.wires().ports[self.1];
        port.drained += 1;
        port.reading.clear();
    }

    fn poll_event(&mut self) -> Option<RailEvent> {
        self.0.next_event(self.1)
    }

    fn fd(&self) -> Option<i32> {
        None
    }
}

/// Puts the bytes of a direct write in place, if they have one, and hands over its packet.
fn land_direct(
    landing: &Grants,
    head: &DirectHead,
    bytes: &[u8],
    sink: &mut dyn FnMut(Received<'_>),
) {
    let payload = bytes.get(head.lead()..).unwrap_or(&[]);
    let packet = head.packet(bytes);
    let landed = landing.land(head, |place| {
        place.fill(payload);
        let whole = payload.len() == head.len as usize;
        (whole, whole)
    });
    sink(Received {
        from: RailAddr::NONE,
        bytes: packet,
        segment: packet.len(),
        beside: match landed {
            Some(true) => payload.len(),
            _ => 0,
        },
        missing: 0, // what a datagram lacks does not come
    });
}

/// Receiving half of a rail.
pub struct SimRx(Arc<Machine>, usize);

impl SimRx {
    /// Of a machine's rail.
    pub(crate) fn new(machine: Arc<Machine>, rail: usize) -> SimRx {
        SimRx(machine, rail)
    }
}

impl RailRx for SimRx {
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        if !self.0.waiting() {
            return 0;
        }
        let mut wires = self.0.wires();
        let port = &mut wires.ports[self.1];
        if port.inbox.is_empty() {
            return 0;
        }
        let (count, tells) = (port.run_length(), port.tells_segment);
        let Some((_, mut bytes)) = port.inbox.pop_front() else {
            return 0;
        };
        let first = bytes.len();
        if let Some(head) = DirectHead::parse(&bytes) {
            port.inbox_bytes -= first as u64 + TRUESIZE;
            let landing = port.landing(head.key);
            self.0.took(1, wires);
            land_direct(&landing, &head, &bytes, sink);
            self.0.keep(bytes);
            return 1;
        }
        port.inbox_bytes -= first as u64 + TRUESIZE;
        for _ in 1..count {
            let port = &mut wires.ports[self.1];
            let Some((_, next)) = port.inbox.pop_front() else {
                break;
            };
            port.inbox_bytes -= next.len() as u64 + TRUESIZE;
            bytes.extend_from_slice(&next);
            spare::give(next);
        }
        self.0.took(count, wires);
        sink(Received {
            from: RailAddr::NONE,
            bytes: &bytes,
            segment: if tells { first } else { 0 },
            beside: 0,
            missing: 0,
        });
        self.0.keep(bytes);
        if tells {
            count
        } else {
            1
        }
    }
}
