//! The two halves of a simulated rail, as an engine has them: the outbox of sent packets, which the
//! world collects, and the inbox of packets that the world delivers.

use crate::base::spare;
use crate::machine::buffers::SimBuffers;
use crate::machine::host::Machine;
use crate::machine::out::{News, Out, OutWrite};
use crate::machine::port::{TRUESIZE, UC_MTU, WIRE_BYTES};
use crate::machine::source_ports::SourcePorts;
use marline_rails::{
    Armed, BufId, Caps, Connected, DirectWrite, DownReason, InterfaceChoice, LinkId, LinkTable,
    Links, RailEvent, RailFault, RailRx, RailTx, Received, Registrations, RemoteWrite,
    RemoteWrites, SendOutcome, Silence, TxBuffers, Write,
};
use marline_wire::{DirectHead, RailAddr};
use std::sync::Arc;

/// Silent connections younger than this are not replaced.
const YOUNG_NS: u64 = 100_000_000;

/// Sending half of a rail.
pub struct SimTx {
    pub(crate) machine: Arc<Machine>,
    pub(crate) rail: usize,
    caps: Caps,
    addr: RailAddr,
    /// By address, with the time of connection, if established.
    pub(crate) links: LinkTable<RailAddr, Option<u64>>,
    /// Calls with writes so far.
    calls: u32,
    /// Number of times that connections were replaced; after two, packets leave in one part only.
    remade: u32,
    silence: Silence,
    source_ports: SourcePorts,
    buffers: SimBuffers,
}

impl SimTx {
    /// The sending half of a machine's rail.
    pub(crate) fn new(machine: Arc<Machine>, rail: usize, (caps, addr): (Caps, RailAddr)) -> SimTx {
        SimTx {
            machine,
            rail,
            caps,
            addr,
            links: LinkTable::default(),
            calls: 0,
            remade: 0,
            silence: Silence::default(),
            source_ports: SourcePorts::default(),
            buffers: SimBuffers::new(&caps),
        }
    }

    fn registrations(&self) -> Arc<Registrations> {
        self.machine.wires().ports[self.rail].landing.clone()
    }
}

impl Links for SimTx {
    fn connect(&mut self, to: &RailAddr) -> Connected {
        let connects = self.caps.connected;
        let new = self.links.find(to).is_none();
        let link = self.links.connect(*to, || (!connects).then_some(0));
        if new && connects {
            self.machine.wires().dials.push((self.rail, *to));
            self.machine.stir();
        }
        let up = self.is_up(link);
        Connected { link, up }
    }

    fn works(&mut self, _: LinkId) {}

    fn silent(&mut self, _: LinkId) {
        if self.silence.note(self.machine.peek_now()) {
            self.machine.wires().announcing.push(self.rail);
            self.machine.stir();
        }
    }

    /// As rails of TCP and of unreliable connections.
    fn reroute(&mut self, link: LinkId) -> bool {
        let now = self.machine.peek_now();
        let since = self.links.get(link).copied().flatten();
        let old = since.is_some_and(|since| now - since >= YOUNG_NS);
        let connects = self.caps.connected;
        let Some(to) = self.links.key(link).filter(|_| old && connects) else {
            return false;
        };
        self.remade += u32::from(self.is_uc());
        self.machine.wires().remakes.push((self.rail, to));
        self.machine.stir();
        true
    }

    fn close(&mut self, link: LinkId) {
        if self.links.close(link).is_some() {
            self.source_ports.close(link);
        }
    }
}

impl SimTx {
    pub(crate) fn is_up(&self, link: LinkId) -> bool {
        matches!(self.links.get(link), Some(Some(_)))
    }

    /// Returns whether the rail's links are unreliable connections.
    fn is_uc(&self) -> bool {
        self.machine.wires().ports[self.rail].uc
    }

    /// The event of a connection that comes up or goes down, if the engine has such a link.
    fn of_link(&mut self, to: &RailAddr, down: Option<DownReason>) -> Option<RailEvent> {
        let (link, up) = (self.links.find(to)?, down.is_none());
        let since = up.then(|| self.machine.peek_now());
        let is_up = self.links.get_mut(link)?;
        if core::mem::replace(is_up, since).is_some() && up {
            return None;
        }
        let Some(why) = down else {
            return Some(RailEvent::LinkUp(link));
        };
        self.links.retire(link);
        Some(RailEvent::LinkDown(link, why))
    }
}

impl TxBuffers for SimTx {
    fn lend(&mut self) -> Option<BufId> {
        self.reap();
        self.buffers.plain.lend()
    }

    fn buffer(&mut self, id: BufId) -> &mut [u8] {
        self.buffers.plain.buffer(id)
    }

    fn give_back(&mut self, id: BufId) {
        self.buffers.plain.free(id);
    }

    fn send_buffer(
        &mut self,
        link: LinkId,
        buffer: BufId,
        len: usize,
        segment: usize,
        flow: u8,
    ) -> SendOutcome {
        let memory = self.buffers.plain.take(buffer);
        let outcome = self.send(link, &memory[..len], segment, flow);
        let port = &mut self.machine.wires().ports[self.rail];
        let (until, given) = (port.egress_free, port.given);
        port.given += u64::from(self.buffers.reads() && outcome == SendOutcome::Sent);
        (self.buffers).sent((buffer, memory), outcome, (until, given));
        outcome
    }

    fn drain(&mut self) {
        self.buffers.drain();
        let port = &mut self.machine.wires().ports[self.rail];
        port.drained += 1;
        port.done = 0;
        port.under_way.clear();
        port.sources.drain();
    }

    fn given(&self) -> u64 {
        self.machine.wires().ports[self.rail].given
    }

    fn take_done(&mut self) -> u64 {
        self.reap();
        let port = &mut self.machine.wires().ports[self.rail];
        core::mem::replace(&mut port.done, u64::MAX)
    }
}

impl SimTx {
    /// Frees buffers that the device has read.
    fn reap(&mut self) {
        let first = self.buffers.reap(self.machine.peek_now());
        if first != u64::MAX {
            let port = &mut self.machine.wires().ports[self.rail];
            port.done = port.done.min(first);
        }
    }
}

impl RailTx for SimTx {
    fn caps(&self) -> Caps {
        self.caps
    }

    fn move_to(&mut self, _: &InterfaceChoice) -> Option<RailAddr> {
        self.addr = self.machine.wires().ports[self.rail].addr;
        Some(self.addr)
    }

    fn local_addr(&self) -> RailAddr {
        self.addr
    }

    fn send(&mut self, link: LinkId, bytes: &[u8], segment: usize, flow: u8) -> SendOutcome {
        let at = self.machine.peek_now();
        let wires = &mut *self.machine.wires();
        let port = &mut wires.ports[self.rail];
        if port.broken {
            const ENETDOWN: i32 = 100;
            return SendOutcome::Fault(RailFault::Down(ENETDOWN));
        }
        let Some(to) = self.links.key(link).filter(|_| self.is_up(link)) else {
            return SendOutcome::Sent; // lost
        };
        if let Some(&max) = port.limits.iter().filter(|&&max| segment > max).min() {
            return SendOutcome::TooBig(max);
        }
        if self.remade > 1 && segment > UC_MTU {
            return SendOutcome::TooBig(UC_MTU);
        }
        if port.blocked_until(at).is_some() {
            return SendOutcome::Busy;
        }
        let frames = bytes.len().div_ceil(segment.max(1)) as u64;
        let wire = bytes.len() as u64 + WIRE_BYTES * frames;
        port.egress_free = port.egress_free.max(at) + port.takes_ns(wire);
        wires.outbox.push(Out {
            rail: self.rail,
            to,
            segment: segment.max(1),
            bytes: spare::copy(bytes),
            source_port: self.source_ports.of(link, flow),
            at,
            write: None,
            direct: false,
            light: false,
        });
        self.machine.stir();
        SendOutcome::Sent
    }

    fn poll_event(&mut self) -> Option<RailEvent> {
        loop {
            let event = match self.machine.next_event(self.rail)? {
                News::Rail(event) => Some(event),
                News::Link(to, down) => self.of_link(&to, down),
                News::Refused(by) => self.links.find(&by).map(RailEvent::Refused),
                News::TooBig(to, max) => {
                    let link = self.links.find(&to);
                    link.map(|link| RailEvent::TooBig(link, max))
                }
            };
            if event.is_some() {
                return event;
            }
        }
    }
}

impl RemoteWrite for SimTx {
    fn register(&mut self, base: *mut u8, len: usize) -> Option<u64> {
        let port = &mut self.machine.wires().ports[self.rail];
        if port.registered.len() >= port.registered_max {
            return None;
        }
        port.next_key += 1;
        port.registered.insert(port.next_key, (base as usize, len));
        port.landing.add(port.next_key, base, len);
        Some(port.next_key)
    }

    fn deregister(&mut self, key: u64) {
        let port = &mut self.machine.wires().ports[self.rail];
        port.registered.remove(&key);
        port.advertised.remove(&key);
        port.sources.close(key);
        port.stages.close(key);
        port.landing.remove(key);
    }

    fn write(&mut self, link: LinkId, write: &Write<'_>, packet: &[u8]) -> SendOutcome {
        let sent = self.send(link, packet, packet.len(), 0);
        if sent != SendOutcome::Sent {
            return sent;
        }
        let pieces = write.pieces.iter().map(|p| (p.base as usize, p.len));
        let pieces: Vec<(usize, usize)> = pieces.collect();
        self.calls += 1;
        let call = self.is_uc().then_some(self.calls);
        let part_max = if self.remade > 1 {
            self.caps.datagram_max.min(UC_MTU)
        } else {
            usize::MAX
        };
        let wires = &mut *self.machine.wires();
        let port = &mut wires.ports[self.rail];
        let (bytes, drained) = (pieces.iter().map(|p| p.1 as u64).sum(), port.drained);
        port.egress_free += port.takes_ns(bytes);
        port.give(write.token);
        (port.sources).read(write.token, write.source, pieces.clone());
        if let Some(out) = wires.outbox.last_mut() {
            out.write = Some(OutWrite {
                key: write.key,
                offset: write.offset,
                token: write.token,
                pieces,
                drained,
                call,
                part_max,
                copied: None,
            });
        }
        SendOutcome::Sent
    }
}

marline_rails::no_groups!(SimTx);

impl DirectWrite for SimTx {
    fn write_direct(
        &mut self,
        link: LinkId,
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
        let sent = self.send(link, &bytes, segment, flow);
        spare::give(bytes);
        let mut wires = self.machine.wires();
        if let Some(out) = wires
            .outbox
            .last_mut()
            .filter(|_| sent == SendOutcome::Sent)
        {
            out.direct = true;
        }
        sent
    }

    fn seal(&mut self, key: u64, offset: u64, len: u64) {
        self.registrations().seal(key, offset..offset + len);
    }

    fn damaged(&mut self) {}

    fn landed(&self, key: u64, offset: u64, len: u64) -> bool {
        let range = offset..offset + len;
        self.caps.remote_write != RemoteWrites::Direct || self.registrations().landed(key, &range)
    }
}

/// Places the bytes of a direct write, if they have a place, and delivers the write's packet.
fn land_direct(
    landing: &Registrations,
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
        link: None,
        from: RailAddr::NONE,
        bytes: packet,
        segment: packet.len(),
        beside: match landed {
            Some(true) => payload.len(),
            _ => 0,
        },
        missing: 0, // missing bytes of a datagram do not come later
    });
}

/// Receiving half of a rail.
pub struct SimRx(Arc<Machine>, usize);

impl SimRx {
    /// The receiving half of a machine's rail.
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
        let (count, reports) = (port.run_length(), port.reports_segment);
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
            link: None,
            from: RailAddr::NONE,
            bytes: &bytes,
            segment: if reports { first } else { 0 },
            beside: 0,
            missing: 0,
        });
        self.0.keep(bytes);
        if reports {
            count
        } else {
            1
        }
    }

    fn recv_rest(&mut self, _sink: &mut dyn FnMut(Received<'_>)) -> usize {
        0
    }

    fn fd(&self) -> Option<i32> {
        None
    }

    fn arm(&mut self) -> Armed {
        Armed::Sleep
    }
}
