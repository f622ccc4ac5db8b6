//! The two halves of an AF_XDP socket. Each has its own frames of the common memory, so the halves
//! can be used by two threads.

use super::memory::Area;
use super::ring::{Consumer, Producer};
use super::socket::{Limits, Opened, XdpSocket};
use crate::sys::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Calls in which the kernel may send the rest of a batch: it sends 32 frames per call.
const CALLS_MAX: usize = 8;

/// The halves of a new socket, which is bound here to a queue of an interface (the latter's index
/// and the queue's number), and the sizes of its memory: at most `limits`. The error names the
/// step.
pub(crate) fn open_queues(
    socket: OwnedFd,
    queue: (u32, u32),
    limits: &Limits,
) -> Result<(RxQueue, TxQueue, Limits), (&'static str, Errno)> {
    let Opened {
        socket,
        limits,
        memory,
        received,
        fill,
        send,
        sent,
    } = XdpSocket::set_up(socket, queue, limits)?;
    let frame_len = u64::from(limits.frame_len);
    let rx = RxQueue {
        socket: socket.clone(),
        memory: memory.clone(),
        received,
        fill,
        frame_len,
    };
    let own = limits.receive..limits.receive + limits.send;
    let tx = TxQueue {
        socket,
        memory,
        send,
        sent,
        free: own.map(|frame| u64::from(frame) * frame_len).collect(),
        frame_len,
    };
    Ok((rx, tx, limits))
}

/// The receiving half.
pub(crate) struct RxQueue {
    socket: Arc<XdpSocket>,
    memory: Arc<Area>,
    received: Consumer<libc::xdp_desc>,
    /// Frames for the kernel to fill.
    fill: Producer<u64>,
    frame_len: u64,
}

impl RxQueue {
    /// Hands at most `most` waiting frames to `sink` and returns their number.
    #[inline]
    pub(crate) fn receive(&mut self, most: usize, mut sink: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        while count < most {
            let Some(frame) = self.received.take() else {
                break;
            };
            count += 1;
            let len = frame.len as usize;
            if let Some(at) = self.memory.at(frame.addr, len) {
                // SAFETY: within the memory; the kernel gave the frame to this half, which alone
                // has it until it is in the fill ring again.
                sink(unsafe { std::slice::from_raw_parts(at, len) });
            }
            self.fill.push(frame.addr / self.frame_len * self.frame_len);
        }
        if count > 0 {
            self.received.release();
            self.fill.publish();
        }
        count
    }

    /// The socket, which is readable while frames wait.
    pub(crate) fn socket(&self) -> &XdpSocket {
        &self.socket
    }
}

/// The sending half.
pub(crate) struct TxQueue {
    socket: Arc<XdpSocket>,
    memory: Arc<Area>,
    send: Producer<libc::xdp_desc>,
    sent: Consumer<u64>,
    /// Frames that are not in the rings.
    free: Vec<u64>,
    frame_len: u64,
}

impl TxQueue {
    /// Returns whether `frames` can be pushed; takes back those that the kernel has sent.
    #[inline]
    pub(crate) fn has_room(&mut self, frames: usize) -> bool {
        if self.free.len() < frames {
            while let Some(frame) = self.sent.take() {
                self.free.push(frame);
            }
            self.sent.release();
        }
        self.free.len() >= frames && self.send.room(frames as u32) >= frames as u32
    }

    /// Adds a frame that `write` makes; `write` returns its length, or `None` for no frame. The
    /// kernel sees it at the next [`Self::flush`]. Returns whether the frame was added.
    #[inline]
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        let Some(addr) = self.free.pop() else {
            return false;
        };
        let len = self.frame_len as usize;
        let frame = self.memory.at(addr, len).and_then(|at| {
            // SAFETY: within the memory, and a frame that is not in the rings is this half's alone.
            write(unsafe { std::slice::from_raw_parts_mut(at, len) })
        });
        let pushed = frame.is_some_and(|len| {
            self.send.push(libc::xdp_desc {
                addr,
                len: len as u32,
                options: 0,
            })
        });
        if !pushed {
            self.free.push(addr);
        }
        pushed
    }

    /// Shows the kernel the frames, and calls it where it looks only when called. After `EAGAIN`
    /// frames still wait: flush again later. After other errors too, and the kernel may refuse
    /// again.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        self.send.publish();
        if !self.send.wants_wakeup() {
            return Ok(());
        }
        let mut result = self.socket.wake();
        for _ in 1..CALLS_MAX {
            if !matches!(result, Err(libc::EAGAIN | libc::EINTR)) {
                break;
            }
            result = self.socket.wake();
        }
        result
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &XdpSocket {
        &self.socket
    }
}
