//! A group socket shared by the processes of a host, as read by one of them.

use super::host_member::{tag, HostMember};
use super::host_ring::{self as ring, Frame, HostMemory, Next, Place};
use super::shared::Shared;
use crate::sys::{SharedRing, Socket};
use crate::Received;
use marline_wire::RailAddr;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Most datagrams per poll.
const BATCH: usize = 8;
/// Polls in a row with the lock taken after which the holder's existence is checked.
const STUCK: u32 = 16;
/// Most datagrams that wait for the lock; further datagrams are dropped, and the other processes
/// recover them by NACK.
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

/// A shared socket, on the receiving half.
pub(super) struct HostFeed {
    pub(super) member: Arc<HostMember>,
    place: Place,
    buffer: Box<[u8]>,
    /// Datagrams that were read and are not in the ring yet.
    waiting: VecDeque<(Frame, Box<[u8]>)>,
    /// Polls in a row that found the lock taken.
    stuck: u32,
    /// The last read found a datagram, so more may wait.
    burst: bool,
}

impl HostFeed {
    pub(super) fn new(member: Arc<HostMember>) -> HostFeed {
        HostFeed {
            place: Place::new(&member.ring),
            member,
            buffer: vec![0; SharedRing::BODY_MAX as usize].into(),
            waiting: VecDeque::new(),
            stuck: 0,
            burst: false,
        }
    }

    /// Takes datagrams that other processes have read; if there are none, reads the socket. Returns
    /// the number of datagrams, each of which may be a GRO batch.
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
        let member = &self.member;
        let mut count = 0;
        while count < BATCH {
            match self.place.next(&member.ring, &mut self.buffer) {
                Next::Nothing => break,
                Next::Overtaken => {
                    shared.drops.fetch_add(1, Relaxed);
                }
                Next::Frame(frame) if member.wants(&frame) => {
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
                joined: self.member.joined,
                reader: self.member.ring.slot,
                source: tag(&from),
            };
            self.share(shared, &frame);
            if frame.source != self.member.own {
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

    /// Puts the datagram that was read into the ring; if another process holds the lock for long,
    /// the datagram waits.
    fn share(&mut self, shared: &Shared, frame: &Frame) {
        let bytes = &self.buffer[..frame.len as usize];
        if self.waiting.is_empty() && self.member.lock() {
            ring::publish(&self.member.ring, frame, bytes);
            ring::unlock(&self.member.ring);
        } else if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((*frame, bytes.into()));
        } else {
            shared.drops.fetch_add(1, Relaxed);
        }
    }

    #[cold]
    fn share_waiting(&mut self) {
        let memory = &self.member.ring;
        if !self.member.lock() {
            self.stuck += 1;
            let Err(holder) = ring::try_lock(memory, memory.slot) else {
                return ring::unlock(memory); // released just now: retry at the next poll
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
        let mut called = ring::call_sleepers(&self.member.ring, self.member.ring.slot);
        while called != 0 {
            self.member.waker.call(called.trailing_zeros());
            called &= called - 1;
        }
    }

    /// Prepares a sleep: other processes wake this one from now on. Returns `true` if datagrams
    /// wait already.
    pub(super) fn arm(&mut self) -> bool {
        ring::register_sleeper(&self.member.ring, self.member.ring.slot);
        let member = &self.member;
        !self
            .place
            .is_drained(&member.ring, |frame| member.wants(frame))
            || !self.waiting.is_empty()
    }

    /// Ends a sleep.
    pub(super) fn wake(&self) {
        ring::wake_up(&self.member.ring, self.member.ring.slot);
        self.member.waker.drain();
    }

    /// The descriptor that becomes readable when other processes have read datagrams.
    pub(super) fn waker(&self) -> RawFd {
        self.member.waker.fd()
    }
}
