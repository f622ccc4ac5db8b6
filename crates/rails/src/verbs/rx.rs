//! Receiving half.

use super::handshake::{Foreign, Handshake};
use super::immediate::Landed;
use super::shared::{
    Failure, Notification, Shared, VerbsConfig, HANDSHAKE_SLOTS, RECEIVES, ROUTE_LEN,
};
use super::ud_multicast;
use crate::sys::verbs::{Completion, PostTo, QueueType, Receives};
use crate::{Armed, RailRx, Received};
use marline_wire::RailAddr;
use std::sync::atomic::Ordering::Acquire;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Completions per poll.
const COMPLETIONS: usize = 32;
/// Free slots before a post: each post costs a doorbell or a system call.
const POST_MIN: usize = 16;
/// Polls for rare packets per check for asynchronous device events, which is a system call.
const EVENTS_EVERY: u32 = 64;
/// Interval of looks at the port's count of wrong Q_Keys: a request to the adapter.
const VIOLATIONS_EVERY: Duration = Duration::from_secs(1);
/// Alignment of slots in bytes.
const ALIGN: usize = 64;
/// Bits of a name (`wr_id`) for the slot; the others hold the life of the datagram queue pair.
const SLOT_BITS: u32 = 32;
/// Instead of a life: the slot belongs to the connections' receive queue.
const CONNECTED: u64 = u32::MAX as u64;

/// Receiving half of a [`super::VerbsRail`].
pub struct VerbsRx {
    // Drop order: posted receives before their memory.
    receives: Receives,
    /// Receives of connections.
    connected: Option<Receives>,
    /// The connections are reliable and break at the first error.
    reliable: bool,
    /// Landed writes on unreliable connections.
    landed: Landed,
    shared: Arc<Shared>,
    life: u32,
    completions: Box<[Completion; COMPLETIONS]>,
    turn: u32,
    /// The port's count of wrong Q_Keys, and the time of the last look at it.
    violations: u32,
    looked: Instant,
}

impl VerbsRx {
    pub(super) fn new(
        shared: Arc<Shared>,
        kind: QueueType,
        config: &VerbsConfig,
    ) -> Result<VerbsRx, Failure> {
        let failed = |errno| ("ibv_reg_mr", errno);
        let slots = match shared.connections {
            Some(_) if config.datagrams_first == 0 => HANDSHAKE_SLOTS,
            _ => RECEIVES,
        };
        let slots = slots.min(shared.port.device.queue_max) as usize;
        let slot_len = (ROUTE_LEN + shared.port.attr.mtu()).next_multiple_of(ALIGN);
        let receives = Receives::new(&shared.domain, slots, slot_len).map_err(failed)?;
        let connected = shared
            .connections
            .as_ref()
            .map(|all| Receives::new(&shared.domain, all.slots, all.slot_len));
        let violations = shared.port.attr.qkey_violations();
        let mut rx = VerbsRx {
            receives,
            connected: connected.transpose().map_err(failed)?,
            reliable: kind == QueueType::Rc,
            landed: Landed::default(),
            shared,
            life: 0,
            completions: Box::new([Completion::default(); COMPLETIONS]),
            turn: 0,
            violations,
            looked: Instant::now(),
        };
        rx.post().map_err(|e| ("ibv_post_recv", e))?;
        rx.post_connected().map_err(|e| ("ibv_post_srq_recv", e))?;
        Ok(rx)
    }

    /// Posts the free receive slots of connections.
    fn post_connected(&mut self) -> Result<(), i32> {
        match (&mut self.connected, &self.shared.connections) {
            (Some(receives), Some(connections)) => {
                let to = PostTo::Shared(&connections.receives);
                receives.post(to, CONNECTED << SLOT_BITS)
            }
            _ => Ok(()),
        }
    }

    /// Posts the free receive slots of datagrams.
    fn post(&mut self) -> Result<(), i32> {
        let _posting = self.shared.posting();
        let life = self.shared.life.load(Acquire);
        if life != self.life {
            self.life = life;
            self.receives.take_all();
        }
        let name = u64::from(life) << SLOT_BITS;
        self.receives
            .post(PostTo::Pair(&self.shared.datagrams), name)
    }

    fn take(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let Ok(found) = self.shared.receive_queue.poll(&mut self.completions[..]) else {
            self.shared.note(Notification::Failed(self.life));
            return 0;
        };
        let mut count = 0;
        for at in 0..found {
            let completion = self.completions[at];
            match completion.wr_id >> SLOT_BITS {
                CONNECTED => count += self.take_connected(&completion, sink),
                life if life == u64::from(self.life) => {
                    count += self.take_datagram(&completion, sink);
                }
                _ => {} // its slot is posted again
            }
        }
        let renewed = self.life != self.shared.life.load(Acquire);
        if (self.receives.idle() >= POST_MIN || renewed) && self.post().is_err() {
            self.shared.note(Notification::Failed(self.life));
        }
        let connected = self.connected.as_ref();
        if connected.is_some_and(|slots| slots.idle() >= POST_MIN) {
            let _ = self.post_connected(); // retried with the next packet
        }
        count
    }

    #[inline]
    fn take_datagram(
        &mut self,
        completion: &Completion,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        if completion.status != 0 {
            // The slot stays posted until the queue pair begins a new life.
            self.shared.note(Notification::Failed(self.life));
            return 0;
        }
        let slot = completion.wr_id as u32;
        let Some(bytes) = self.receives.take(slot, completion.byte_len as usize) else {
            return 0;
        };
        let own = ud_multicast::is_own(&self.shared, completion, bytes);
        let bytes = bytes
            .get(ROUTE_LEN..)
            .filter(|bytes| !bytes.is_empty() && !own);
        let count = match (bytes, &self.shared.connections) {
            (Some(bytes), None) => hand(bytes, sink),
            (Some(bytes), Some(_)) => match Handshake::read(bytes) {
                Some((handshake, tag)) => {
                    self.shared.note(Notification::Heard(handshake, tag));
                    0
                }
                None => {
                    // (The CRC of a damaged packet may look like one: it is handed on.)
                    if let Some(foreign) = Foreign::read(bytes) {
                        self.shared.note(Notification::Foreign(foreign));
                    }
                    hand(bytes, sink)
                }
            },
            (None, _) => 0,
        };
        self.receives.give_back(slot);
        count
    }

    #[inline]
    fn take_connected(
        &mut self,
        completion: &Completion,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        let Some(receives) = &mut self.connected else {
            return 0;
        };
        let (slot, failed) = (completion.wr_id as u32, completion.status != 0);
        // A write's bytes are in its destination, not in the slot.
        let beside = failed || completion.is_of_write();
        let len = if beside {
            0
        } else {
            completion.byte_len as usize
        };
        let Some(bytes) = receives.take(slot, len) else {
            return 0;
        };
        let pair = completion.qp_num;
        let whole = match completion.immediate().filter(|_| !failed) {
            Some(immediate) if beside => {
                self.landed.write(pair, immediate);
                false
            }
            Some(immediate) => self.landed.packet(pair, immediate),
            None => true,
        };
        let count = match bytes.is_empty() || !whole {
            true => 0,
            false => hand(bytes, sink),
        };
        receives.give_back(slot);
        // An unreliable connection survives a packet with a missing part.
        let broken = failed && (self.reliable || completion.status == Completion::FLUSHED);
        if broken {
            self.shared
                .note(Notification::Broken(completion.qp_num, completion.status));
        }
        count
    }

    /// Takes asynchronous events of the device.
    fn events(&mut self) {
        while let Some((event, name)) = self.shared.port.device.event() {
            self.shared.note(Notification::Event(event, name));
        }
        if self.looked.elapsed() >= VIOLATIONS_EVERY {
            self.look_for_violations();
        }
    }

    #[cold]
    fn look_for_violations(&mut self) {
        self.looked = Instant::now();
        let port = &self.shared.port;
        let Ok(attr) = port.device.port(port.number) else {
            return;
        };
        let before = std::mem::replace(&mut self.violations, attr.qkey_violations());
        let more = self.violations.saturating_sub(before);
        if more > 0 {
            self.shared.note(Notification::QKeyViolations(more));
        }
    }
}

/// Hands a packet to `sink`.
#[inline]
fn hand(bytes: &[u8], sink: &mut dyn FnMut(Received<'_>)) -> usize {
    sink(Received {
        link: None,
        from: RailAddr::NONE,
        bytes,
        segment: bytes.len(),
        beside: 0,
        missing: 0,
    });
    1
}

impl RailRx for VerbsRx {
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.take(sink)
    }

    fn recv_rest(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(EVENTS_EVERY) {
            self.events();
        }
        self.take(sink)
    }

    fn fd(&self) -> Option<i32> {
        Some(self.shared.epoll.fd())
    }

    fn arm(&mut self) -> Armed {
        self.shared.awake();
        self.shared.channel.clear();
        self.events();
        self.shared.receive_queue.arm();
        Armed::LookAgain
    }
}
