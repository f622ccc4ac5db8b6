//! Receiving half: polls rings and sockets, and carries out the orders of the sending half.

mod handshakes;

use super::connection::{Break, Connection, Name};
use super::frame::{Head, Kind, To, PLACE_LEN};
use super::handshake::HANDSHAKE_LEN;
use super::inbox;
use super::proof::{answer_to, Handshaking, Prover};
use super::pulls::{Added, Run};
use super::ring::{Consumer, Memory};
use super::shared::{Notification, Order, Shared, BODY_MAX, LISTENER};
use crate::{Armed, RailRx, Received};
use marline_wire::DirectHead;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Most frames that are taken from one ring before the others are read.
const TURN_MAX: usize = 64;
/// Above this number of rings the receiver asks for notification bits; up to it, the polled words
/// fit into the L1 cache beside other data.
const LOOK_MAX: usize = 16;
/// Most messages read from one socket per poll.
const MESSAGES_MAX: usize = 8;

/// An incoming connection.
struct Incoming {
    connection: Arc<Connection>,
    consumer: Consumer,
    /// Reused memory for runs of pulls.
    run: Run,
    /// Until the other end has proven itself: our side of the proof, and the memory that our
    /// handshake passes then.
    proving: Option<(Prover, OwnedFd)>,
}

/// Receiving half of a [`super::ShmRail`].
pub struct ShmRx {
    shared: Arc<Shared>,
    /// Indexed by slot.
    incoming: Vec<Option<Incoming>>,
    /// Slots in use.
    slots: Vec<u32>,
    by_name: HashMap<Name, u32>,
    handshaking: VecDeque<Handshaking>,
    /// Packets are copied here before they are handed to `sink`, so that the peer cannot change
    /// them.
    buffer: Box<[u8]>,
    /// Notification bits are requested.
    bits: bool,
    /// All rings must be polled next time.
    all: bool,
    /// Producers must wake this receiver.
    armed: bool,
}

/// The sink of a frame's packets, and their number so far.
struct Handing<'a> {
    sink: &'a mut dyn FnMut(Received<'_>),
    count: usize,
}

impl Handing<'_> {
    #[inline]
    fn packets(&mut self, bytes: &[u8], segment: usize) {
        self.count += bytes.len().div_ceil(segment);
        (self.sink)(Received {
            link: None,
            from: marline_wire::RailAddr::NONE,
            bytes,
            segment,
            beside: 0,
            missing: 0,
        });
    }
}

impl Incoming {
    /// Takes frames out of the ring, at most [`TURN_MAX`].
    fn read(
        &mut self,
        shared: &Shared,
        buffer: &mut [u8],
        handing: &mut Handing<'_>,
    ) -> Result<(), Break> {
        for _ in 0..TURN_MAX {
            let word = self.consumer.word(&self.connection.input);
            if word == 0 {
                break;
            }
            let head = Head::read(word, BODY_MAX).ok_or(Break::Garbled)?;
            match head.kind {
                Kind::Packets => {
                    let bytes = &mut buffer[..head.len];
                    self.connection.input.get(self.consumer.body(), bytes);
                    self.pass(&head);
                    handing.packets(bytes, head.segment);
                }
                Kind::Inline => self.land(shared, &head, buffer, handing)?,
                Kind::Pull => self.pull(shared, &head, buffer, handing)?,
            }
        }
        Ok(())
    }

    /// Advances past a frame and returns its room to the producer.
    #[inline]
    fn pass(&mut self, head: &Head) {
        self.consumer.advance(head.len as u64);
        self.release();
    }

    /// Returns the room of all passed frames to the producer.
    #[inline]
    fn release(&mut self) {
        if self.consumer.release(&self.connection.input) {
            self.connection.notify();
        }
    }

    /// Copies the bytes of a write into place and hands over the write notification. If there is no
    /// such place the connection breaks, so that no notification arrives without its write.
    fn land(
        &mut self,
        shared: &Shared,
        head: &Head,
        buffer: &mut [u8],
        handing: &mut Handing<'_>,
    ) -> Result<(), Break> {
        let connection = self.connection.clone();
        let to = self.place();
        let at = self.consumer.body() + PLACE_LEN as u64;
        let rest_len = head.len - PLACE_LEN;
        let len = usize::try_from(to.count).ok();
        let len = len.filter(|len| (1..rest_len).contains(len));
        let len = len.ok_or(Break::Garbled)?;
        let landed = shared.memory.land(&head_of(&to, len as u32), |place| {
            connection.input.land(at, &place);
            ((), true)
        });
        landed.ok_or(Break::Failed(libc::ENXIO))?;
        let packet = &mut buffer[..rest_len - len];
        connection.input.get(at + len as u64, packet);
        self.pass(head);
        handing.packets(packet, packet.len());
        Ok(())
    }

    /// Reads a pull and those that follow it in adjacent memory, as [`Incoming::land`] does.
    fn pull(
        &mut self,
        shared: &Shared,
        first: &Head,
        buffer: &mut [u8],
        handing: &mut Handing<'_>,
    ) -> Result<(), Break> {
        let connection = self.connection.clone();
        let (mut run, mut filled, mut head) = (std::mem::take(&mut self.run), 0, *first);
        run.clear();
        loop {
            let rest = &mut buffer[filled..filled + head.len - PLACE_LEN];
            let at = self.consumer.body() + PLACE_LEN as u64;
            connection.input.get(at, rest);
            match run.add(self.place(), rest, filled) {
                Added::Yes => filled += rest.len(),
                Added::No => break,
                Added::Nonsense => return Err(Break::Garbled),
            }
            self.consumer.advance(head.len as u64);
            let next = Head::read(self.consumer.word(&connection.input), BODY_MAX);
            let room = buffer.len() - filled;
            match next.filter(|next| next.kind == Kind::Pull && next.len <= room) {
                Some(next) => head = next,
                None => break, // invalid frames are reported when their turn comes
            }
        }
        let landed = shared.memory.land(&run.head(), |place| {
            let pulled = connection.pull(run.pieces(), &place);
            (pulled, pulled.is_ok())
        });
        landed.ok_or(Break::Failed(libc::ENXIO))??;
        self.release();
        connection.pulled(run.packets().len() as u64);
        for packet in run.packets() {
            handing.packets(&buffer[packet.clone()], packet.len());
        }
        self.run = run;
        Ok(())
    }

    /// The destination of the next write.
    fn place(&self) -> To {
        let mut place = [0; PLACE_LEN];
        (self.connection.input).get(self.consumer.body(), &mut place);
        To::read(&place)
    }
}

fn head_of(to: &To, len: u32) -> DirectHead {
    DirectHead {
        key: to.key,
        offset: to.offset,
        len,
        packet_len: 0,
        spare: 0,
    }
}

impl ShmRx {
    pub(super) fn new(shared: Arc<Shared>) -> ShmRx {
        ShmRx {
            shared,
            incoming: Vec::new(),
            slots: Vec::new(),
            by_name: HashMap::new(),
            handshaking: VecDeque::new(),
            buffer: vec![0; BODY_MAX as usize].into_boxed_slice(),
            bits: false,
            all: false,
            armed: false,
        }
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Reads one ring.
    #[inline]
    fn read(&mut self, slot: u32, handing: &mut Handing<'_>) {
        let Some(Some(incoming)) = self.incoming.get_mut(slot as usize) else {
            return;
        };
        if incoming.consumer.word(&incoming.connection.input) == 0 {
            return;
        }
        let read = incoming.read(&self.shared, &mut self.buffer, handing);
        // Frames are left and no notification bit will announce them.
        self.all |= incoming.consumer.word(&incoming.connection.input) != 0;
        if let Err(broken) = read {
            self.forget(slot, broken);
        }
    }

    /// Reads all rings that may hold frames.
    #[inline]
    fn read_rings(&mut self, handing: &mut Handing<'_>) {
        if self.bits && !self.all {
            let mut notified = [0u32; TURN_MAX];
            let mut count = 0;
            // Rings that do not fit into `notified` are read at the next poll.
            let shared = self.shared.clone();
            inbox::take_bits(&shared.inbox, |slot| match notified.get_mut(count) {
                Some(room) => (*room, count) = (slot, count + 1),
                None => self.all = true,
            });
            notified[..count]
                .iter()
                .for_each(|slot| self.read(*slot, handing));
            return;
        }
        self.all = false;
        for at in (0..self.slots.len()).rev() {
            if let Some(&slot) = self.slots.get(at) {
                self.read(slot, handing);
            }
        }
    }

    /// Ends a connection.
    #[cold]
    fn forget(&mut self, slot: u32, broken: Break) {
        let Some(incoming) = self.incoming.get_mut(slot as usize).and_then(Option::take) else {
            return;
        };
        let connection = incoming.connection;
        if broken == Break::Garbled {
            self.shared.refused.fetch_add(1, Relaxed);
        }
        if let Some(answer) = answer_to(broken) {
            let _ = connection.socket.send(&answer, &[]); // or it closes
        }
        self.report(broken);
        self.shared.epoll.remove(connection.socket.fd());
        connection.close();
        self.slots.retain(|used| *used != slot);
        self.by_name.remove(&connection.name);
        self.shared.free_slot(slot);
        self.shared
            .note(Notification::Broken(connection.name, broken));
        self.choose();
    }

    /// Starts to read a connection whose socket is in the epoll set.
    fn add(&mut self, connection: Arc<Connection>, proving: Option<(Prover, OwnedFd)>) {
        let slot = connection.slot as usize;
        if self.incoming.len() <= slot {
            self.incoming.resize_with(slot + 1, || None);
        }
        self.by_name.insert(connection.name, connection.slot);
        self.slots.push(connection.slot);
        self.incoming[slot] = Some(Incoming {
            connection,
            consumer: Consumer::default(),
            run: Run::default(),
            proving,
        });
        self.choose();
    }

    /// Chooses between polling and notification bits for the present number of rings.
    fn choose(&mut self) {
        let bits = self.slots.len() > LOOK_MAX;
        if bits != self.bits {
            self.bits = bits;
            inbox::want_bits(&self.shared.inbox, bits);
        }
        self.all = true;
    }

    /// Carries out the orders of the sending half.
    #[inline]
    fn obey(&mut self) {
        for order in self.shared.take_orders() {
            match order {
                Order::Read(connection, proving) => self.add(connection, proving),
                Order::Forget(name) => {
                    if let Some(&slot) = self.by_name.get(&name) {
                        self.forget(slot, Break::Closed);
                    }
                }
            }
        }
    }

    /// Reads a connection's socket: handshake, wake-ups, end of connection.
    fn hear(&mut self, slot: u32, handing: &mut Handing<'_>) {
        for _ in 0..MESSAGES_MAX {
            let Some(Some(incoming)) = self.incoming.get(slot as usize) else {
                return;
            };
            let connection = incoming.connection.clone();
            if incoming.proving.is_some() {
                match self.prove(slot) {
                    Ok(true) => continue,
                    Ok(false) => return,
                    Err(broken) => return self.close(slot, broken, handing),
                }
            }
            let mut bytes = [0; HANDSHAKE_LEN + 1];
            let broken = match connection.socket.recv(&mut bytes) {
                Err(libc::EAGAIN) => return,
                Err(libc::EINTR) => continue,
                Err(libc::ECONNRESET) => Break::Closed,
                Err(errno) => Break::Failed(errno),
                Ok(message) if message.len == 0 => Break::Closed,
                Ok(_) if connection.is_known() => continue,
                Ok(message) => match self.answered(&connection, &bytes[..message.len], message) {
                    Ok(()) => continue,
                    Err(broken) => broken,
                },
            };
            return self.close(slot, broken, handing);
        }
    }

    /// Ends a connection after reading the frames that the other end had sent before.
    fn close(&mut self, slot: u32, broken: Break, handing: &mut Handing<'_>) {
        loop {
            let before = handing.count;
            self.read(slot, handing);
            if handing.count == before {
                break;
            }
        }
        self.forget(slot, broken);
    }

    /// Handles all ready sockets.
    fn look(&mut self, handing: &mut Handing<'_>) {
        let mut ready = Vec::new();
        self.shared.epoll.look(|name| ready.push(name));
        for name in ready {
            if name == LISTENER {
                self.accept();
            } else if let Some(&slot) = self.by_name.get(&name) {
                self.hear(slot, handing);
            } else if let Some(at) = self.handshaking.iter().position(|n| n.name == name) {
                self.read_handshake(at);
            }
        }
    }

    /// Polls everything before or after a sleep, since remaining frames are not announced again. If
    /// nothing was found, the next sleep needs no new arming.
    #[cold]
    fn wake(&mut self, handing: &mut Handing<'_>) {
        self.all = true;
        let before = handing.count;
        self.read_rings(handing);
        if handing.count == before {
            return;
        }
        self.armed = false;
        inbox::disarm(&self.shared.inbox);
        let mut taken = before;
        while handing.count > taken {
            taken = handing.count;
            self.read_rings(handing);
        }
    }

    /// Returns whether a ring holds a frame, or the sending half has finished pulls to handle.
    fn waits(&self) -> bool {
        let mut all = self.incoming.iter().flatten();
        all.any(|one| {
            let connection = &one.connection;
            one.consumer.word(&connection.input) != 0 || connection.has_ended()
        })
    }
}

impl RailRx for ShmRx {
    #[inline]
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let mut handing = Handing { sink, count: 0 };
        self.obey();
        match self.armed {
            true => self.wake(&mut handing),
            false => self.read_rings(&mut handing),
        }
        handing.count
    }

    fn recv_rest(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let mut handing = Handing { sink, count: 0 };
        self.obey();
        self.look(&mut handing);
        handing.count
    }

    fn fd(&self) -> Option<i32> {
        Some(self.shared.epoll.fd())
    }

    fn arm(&mut self) -> Armed {
        self.obey();
        inbox::arm(&self.shared.inbox);
        self.armed = true;
        match self.waits() {
            true => Armed::LookAgain,
            false => Armed::Sleep,
        }
    }
}
