//! A socket of a group that the processes of a host share, as one of them reads it.

use super::host_ring::{self as ring, Frame, HostMemory, Next, Place};
use super::host_seat::{tag, Seat};
use super::shared::Shared;
use crate::sys::{SharedRing, Socket};
use crate::Received;
use marline_wire::RailAddr;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Datagrams that one look takes, or reads, at most.
const BATCH: usize = 8;
/// The lock was found taken for so many looks in a row: is the process that has it still there?
const STUCK: u32 = 16;
/// Datagrams that wait for the lock at most; further ones the others have to ask for.
const WAITING_MAX: usize = 64;

fn deliver(sink: &mut dyn FnMut(Received<'_>), frame: &Frame, bytes: &[u8]) {
    sink(Received {
        link: None,
        from: RailAddr::NONE,
        bytes,
        segment: if frame.joined { 0 } else { bytes.len() },
        beside: 0,
        missing: 0,
    });
}

/// A shared socket, as the receiving half has it.
pub(super) struct HostFeed {
    pub(super) seat: Arc<Seat>,
    place: Place,
    buffer: Box<[u8]>,
    /// Datagrams that were read and are not in the ring yet.
    waiting: VecDeque<(Frame, Box<[u8]>)>,
    /// The lock was found taken for so many looks in a row.
    stuck: u32,
    /// The last read found something: more may wait.
    burst: bool,
}

impl HostFeed {
    pub(super) fn new(seat: Arc<Seat>) -> HostFeed {
        HostFeed {
            place: Place::new(&seat.ring),
            seat,
            buffer: vec![0; SharedRing::BODY_MAX as usize].into(),
            waiting: VecDeque::new(),
            stuck: 0,
            burst: false,
        }
    }

    /// Takes what others have read; where that is nothing, reads the socket. The number of
    /// datagrams, each of which the kernel may have joined of several.
    pub(super) fn recv(
        &mut self,
        shared: &Shared,
        socket: &Socket,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        if !self.waiting.is_empty() {
            self.share_waiting();
        }
        match self.take(shared, sink) {
            0 => self.read(shared, socket, sink),
            count => count,
        }
    }

    fn take(&mut self, shared: &Shared, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let seat = &self.seat;
        let mut count = 0;
        while count < BATCH {
            match self.place.next(&seat.ring, &mut self.buffer) {
                Next::Nothing => break,
                Next::Overtaken => {
                    shared.drops.fetch_add(1, Relaxed);
                }
                Next::Frame(frame) if seat.wants(&frame) => {
                    count += 1;
                    deliver(sink, &frame, &self.buffer[..frame.len as usize]);
                }
                Next::Frame(_) => {}
            }
        }
        if count > 0 {
            shared.from_host.fetch_add(count as u64, Relaxed);
        }
        count
    }

    fn read(
        &mut self,
        shared: &Shared,
        socket: &Socket,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> usize {
        let most = if self.burst { BATCH } else { 1 };
        let (mut read, mut count) = (0, 0);
        while read < most {
            let (len, from) = match socket.recv_from(&mut self.buffer) {
                Ok(Some(datagram)) => datagram,
                Ok(None) => break,
                Err(errno) => {
                    if errno != libc::EAGAIN && errno != libc::EINTR {
                        shared.errors_wait.store(true, Relaxed);
                    }
                    break;
                }
            };
            read += 1;
            let frame = Frame {
                len: len as u32,
                joined: self.seat.joined,
                reader: self.seat.ring.slot,
                source: tag(&from),
            };
            self.share(shared, &frame);
            if frame.source != self.seat.own {
                count += 1;
                deliver(sink, &frame, &self.buffer[..len]);
            }
        }
        self.burst = read == most;
        if read > 0 {
            shared.for_host.fetch_add(read as u64, Relaxed);
            self.call_sleepers();
        }
        count
    }

    /// Puts the datagram that was read into the ring; where another process is about to put one
    /// there and does not end, it waits.
    fn share(&mut self, shared: &Shared, frame: &Frame) {
        let bytes = &self.buffer[..frame.len as usize];
        if self.waiting.is_empty() && self.seat.lock() {
            ring::publish(&self.seat.ring, frame, bytes);
            ring::unlock(&self.seat.ring);
        } else if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((*frame, bytes.into()));
        } else {
            shared.drops.fetch_add(1, Relaxed);
        }
    }

    #[cold]
    fn share_waiting(&mut self) {
        let memory = &self.seat.ring;
        if !self.seat.lock() {
            self.stuck += 1;
            let Err(holder) = ring::try_lock(memory, memory.slot) else {
                return ring::unlock(memory); // it was given back just now: the next look has it
            };
            let gone = self.stuck % STUCK == 0 && memory.is_gone(holder);
            if !gone || !ring::take_over(memory, holder, memory.slot) {
                return;
            }
        }
        self.stuck = 0;
        for (frame, bytes) in self.waiting.drain(..) {
            ring::publish(memory, &frame, &bytes);
        }
        ring::unlock(memory);
        self.call_sleepers();
    }

    fn call_sleepers(&self) {
        let mut called = ring::call_sleepers(&self.seat.ring, self.seat.ring.slot);
        while called != 0 {
            self.seat.waker.call(called.trailing_zeros());
            called &= called - 1;
        }
    }

    /// Before a sleep: from now on others wake this process; `true`: something is there already.
    pub(super) fn arm(&mut self) -> bool {
        ring::fall_asleep(&self.seat.ring, self.seat.ring.slot);
        let seat = &self.seat;
        !self.place.is_dry(&seat.ring, |frame| seat.wants(frame)) || !self.waiting.is_empty()
    }

    /// After a sleep.
    pub(super) fn wake(&self) {
        ring::wake_up(&self.seat.ring, self.seat.ring.slot);
        self.seat.waker.drain();
    }

    /// Becomes readable when others have read something.
    pub(super) fn waker(&self) -> RawFd {
        self.seat.waker.fd()
    }
}
