//! Receiving half: frames of the AF_XDP socket, and datagrams that took the kernel's way.

use super::frames;
use crate::addr::UdpAddr;
use crate::sys::xdp::RxQueue;
use crate::udp::UdpRx;
use crate::{Armed, RailRx, Received};
use marline_wire::RailAddr;

/// Most frames of a queue handed over per call.
const FRAMES_MAX: usize = 32;
/// Polls in which the kernel's sockets are read too, after a datagram was found there: more may
/// come that way, for example on a card with several queues. At other times only `recv_rest` reads
/// them, since each reading is a system call.
const KERNEL_POLLS: u32 = 64;

/// Receiving half of a [`super::XdpRail`].
pub struct XdpRx {
    udp: UdpRx,
    /// At least one, each of another queue of the card.
    queues: Vec<RxQueue>,
    /// Report the source of each packet.
    sources: bool,
    /// Polls left in which the kernel's sockets are read.
    kernel_polls: u32,
}

impl XdpRx {
    pub(super) fn new(udp: UdpRx, queues: Vec<RxQueue>, sources: bool) -> XdpRx {
        XdpRx {
            udp,
            queues,
            sources,
            kernel_polls: 0,
        }
    }

    /// Hands over waiting frames; returns the number of packets.
    #[inline]
    fn receive(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let (mut packets, sources) = (0, self.sources);
        let mut take = |frame: &[u8]| {
            let Some(datagram) = frames::read(frame) else {
                return; // as a UDP socket drops it
            };
            let payload = datagram.payload;
            if payload.is_empty() {
                return;
            }
            packets += 1;
            let (ip, port) = datagram.from;
            let from = match sources {
                true => UdpAddr::new(ip, port).rail(),
                false => RailAddr::NONE,
            };
            sink(Received {
                link: None,
                from,
                bytes: payload,
                segment: payload.len(),
                beside: 0,
                missing: 0,
            });
        };
        let queues = self.queues.iter_mut();
        let frames = queues
            .map(|queue| queue.receive(FRAMES_MAX, &mut take))
            .sum();
        if frames > 0 {
            self.udp.received_beside(frames);
        }
        packets
    }
}

impl RailRx for XdpRx {
    #[inline]
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let count = self.receive(sink);
        if count > 0 || self.kernel_polls == 0 {
            return count;
        }
        let count = self.udp.recv(sink);
        self.kernel_polls = match count {
            0 => self.kernel_polls - 1,
            _ => KERNEL_POLLS,
        };
        count
    }

    fn recv_groups(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.udp.recv_groups(sink)
    }

    fn recv_rest(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let count = self.udp.recv(sink) + self.udp.recv_rest(sink);
        if count > 0 {
            self.kernel_polls = KERNEL_POLLS;
        }
        count
    }

    fn fd(&self) -> Option<i32> {
        self.udp.fd()
    }

    fn arm(&mut self) -> Armed {
        self.udp.arm()
    }
}
