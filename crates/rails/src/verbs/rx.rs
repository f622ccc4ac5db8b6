//! Receiving half.

use super::shared::{Failure, Notice, Shared, RECEIVES, ROUTE_LEN};
use crate::sys::verbs::{Completion, PostTo, Receives};
use crate::{Armed, RailRx, Received};
use marline_wire::RailAddr;
use std::sync::atomic::Ordering::Acquire;
use std::sync::Arc;

/// Completions that are taken at once.
const COMPLETIONS: usize = 32;
/// Slots that are free before they are posted: each post costs the bell of a device, or a system
/// call.
const POST_MIN: usize = 16;
/// Once in so many looks where nothing is expected, the device is asked for events: a system call.
const EVENTS_EVERY: u32 = 64;
/// Slots begin at multiples of this.
const ALIGN: usize = 64;
/// Bits of a name that are the slot's; the others are the life of the pair.
const SLOT_BITS: u32 = 32;

/// Receiving half of a [`super::VerbsRail`].
pub struct VerbsRx {
    // What is posted goes before its memory.
    receives: Receives,
    shared: Arc<Shared>,
    life: u32,
    completions: Box<[Completion; COMPLETIONS]>,
    turn: u32,
}

impl VerbsRx {
    pub(super) fn new(shared: Arc<Shared>) -> Result<VerbsRx, Failure> {
        let slots = RECEIVES.min(shared.port.device.queue_max) as usize;
        let slot_len = (ROUTE_LEN + shared.port.attr.mtu()).next_multiple_of(ALIGN);
        let receives =
            Receives::new(&shared.domain, slots, slot_len).map_err(|e| ("ibv_reg_mr", e))?;
        let mut rx = VerbsRx {
            receives,
            shared,
            life: 0,
            completions: Box::new([Completion::default(); COMPLETIONS]),
            turn: 0,
        };
        rx.post().map_err(|e| ("ibv_post_recv", e))?;
        Ok(rx)
    }

    /// Posts the slots that are ours.
    fn post(&mut self) -> Result<(), i32> {
        let _posting = self.shared.posting();
        let life = self.shared.life.load(Acquire);
        if life != self.life {
            self.life = life;
            self.receives.take_all();
        }
        let name = u64::from(life) << SLOT_BITS;
        self.receives.post(PostTo::Pair(&self.shared.datagrams), name)
    }

    fn take(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let Ok(found) = self.shared.receive_queue.poll(&mut self.completions[..]) else {
            self.shared.note(Notice::Failed(self.life));
            return 0;
        };
        let mut count = 0;
        for at in 0..found {
            let completion = self.completions[at];
            let (life, slot) = (completion.wr_id >> SLOT_BITS, completion.wr_id as u32);
            if life != u64::from(self.life) {
                continue; // its slot is posted anew
            }
            if completion.status != 0 {
                // The slot stays with the pair, until the pair begins a new life.
                self.shared.note(Notice::Failed(self.life));
                continue;
            }
            let len = completion.byte_len as usize;
            let Some(bytes) = self.receives.take(slot, len) else {
                continue;
            };
            if let Some(bytes) = bytes.get(ROUTE_LEN..).filter(|bytes| !bytes.is_empty()) {
                count += 1;
                sink(Received {
                    link: None,
                    from: RailAddr::NONE,
                    bytes,
                    segment: bytes.len(),
                    beside: 0,
                    missing: 0,
                });
            }
            self.receives.give_back(slot);
        }
        let renewed = self.life != self.shared.life.load(Acquire);
        if (self.receives.idle() >= POST_MIN || renewed) && self.post().is_err() {
            self.shared.note(Notice::Failed(self.life));
        }
        count
    }

    /// Takes what the device tells of by itself.
    fn events(&mut self) {
        while let Some(event) = self.shared.port.device.event() {
            self.shared.note(Notice::Event(event));
        }
    }
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
