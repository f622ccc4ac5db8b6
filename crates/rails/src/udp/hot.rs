//! A second receiving socket, connected to the source that nearly everything comes from.
//!
//! To the kernel a datagram of a connected socket's peer is known before it is routed: it spares
//! the look-up of a route and of a socket, 0.33 of 3.65 µs of an 8 B half round trip over veth
//! (Linux 6.18, `net.ipv4.udp_early_demux`). It is the sender's softirq that pays on such a link,
//! and the receiver's processor on a real one.
//!
//! The socket shares the rail's port. Everything else still comes by the main socket, which is then
//! polled less often; so it is only for who hears one source for long, and it is parked (connected
//! to where nothing ever comes from) as soon as too much comes by the main one. It is connected
//! anew, never closed: what waits in it is not lost. Of packets to that very source, from the
//! rail's port to the one it sends from, the network's errors come by it as well, and the sending
//! half reads them.

use super::read::Feed;
use crate::addr::UdpAddr;
use crate::sys::{Errno, Socket, SocketOptions};
use std::sync::Arc;

/// One source is asked for each time so many datagrams came: being told costs 0.12 µs.
const SAMPLES_MIN: u32 = 2;
/// Each socket parked early doubles the samples that the next one takes, up to this.
const SAMPLES_MAX: u32 = 1 << 12;
/// A source that served so many datagrams was not parked early.
const SERVED_MANY: u32 = 1 << 16;
/// Something that waited in the main socket weighs as much as so many datagrams in this one, and is
/// too much when it outweighs them by [`LATE_MAX`]: above a fifth of all it is parked, after eight
/// in a row. Each waited for 16 polls at most.
const LATE_WEIGHT: u32 = 4;
const LATE_MAX: u32 = 32;
/// Nothing comes from there: the discard port (RFC 863), which no socket gets unasked.
const NOWHERE: u16 = 9;

/// Which socket is read first, and which only now and then. Until what came before a change is
/// read, it is the one that had it: the order stays but where both have more than is read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing comes by this one, and nothing is left in it.
    Parked,
    /// One source comes by this one; the main one may still hold some of its datagrams.
    Heating,
    /// One source comes by this one.
    Hot,
    /// Nothing comes by this one any more, but it may still hold some.
    Parking,
}

/// The source of a parked socket at an address.
pub(super) fn nowhere(local: &UdpAddr) -> UdpAddr {
    UdpAddr {
        port: NOWHERE,
        ..*local
    }
}

/// The socket, and which source it is for.
pub(super) struct Hot {
    pub(super) socket: Arc<Socket>,
    pub(super) feed: Feed,
    nowhere: UdpAddr,
    scope_id: u32,
    state: State,
    /// Source of the last samples, how many they were, and how many it takes.
    source: Option<UdpAddr>,
    samples: u32,
    samples_min: u32,
    late: u32,
    served: u32,
}

impl Hot {
    /// Opens the socket beside the main one, whose options these are, at its address `local`;
    /// parked. `gro`: the main one joins datagrams.
    pub(super) fn open(
        (main, local): (&Socket, &UdpAddr),
        options: &SocketOptions<'_>,
        gro: bool,
    ) -> Result<Hot, Errno> {
        let options = SocketOptions {
            port: local.port,
            send_bytes: 0,
            ..*options
        };
        let socket = Socket::open_beside(main, &options)?;
        if gro {
            socket.enable_gro()?;
        }
        let _ = socket.enable_drop_count(); // as with the main one
        let nowhere = nowhere(local);
        socket.connect(&nowhere, options.scope_id)?;
        Ok(Hot {
            socket: Arc::new(socket),
            feed: Feed::default(),
            nowhere,
            scope_id: options.scope_id,
            // What came before it was connected is in it.
            state: State::Parking,
            source: None,
            samples: 0,
            samples_min: SAMPLES_MIN,
            late: 0,
            served: 0,
        })
    }

    /// Returns whether it is read first.
    #[inline]
    pub(super) fn is_first(&self) -> bool {
        matches!(self.state, State::Hot | State::Parking)
    }

    /// Returns whether something may be left in it, or come.
    pub(super) fn is_used(&self) -> bool {
        self.state != State::Parked
    }

    /// The socket that is read first was found empty: whether the other one is from now on.
    #[inline]
    pub(super) fn ran_dry(&mut self) -> bool {
        self.state = match self.state {
            State::Parked | State::Hot => return false,
            State::Heating => State::Hot,
            State::Parking => State::Parked,
        };
        true
    }

    /// A datagram of the main socket was of `source`.
    pub(super) fn sample(&mut self, source: &UdpAddr) {
        if self.state != State::Parked {
            return;
        }
        if self.source != Some(*source) {
            (self.source, self.samples) = (Some(*source), 0);
        }
        self.samples += 1;
        if self.samples >= self.samples_min {
            self.heat();
        }
    }

    #[cold]
    fn heat(&mut self) {
        // A source without a route from here: never mind.
        let Some(source) = self.source else { return };
        if self.socket.connect(&source, self.scope_id).is_ok() {
            (self.state, self.late, self.served) = (State::Heating, 0, 0);
        } else {
            self.wait_longer();
        }
    }

    /// It had so many datagrams.
    #[inline]
    pub(super) fn heard(&mut self, count: usize) {
        self.late = self.late.saturating_sub(count as u32);
        self.served = self.served.saturating_add(count as u32);
    }

    /// This many waited in the main one.
    pub(super) fn waited(&mut self, count: usize) {
        if self.state != State::Hot {
            return;
        }
        self.late += LATE_WEIGHT * count.min(LATE_MAX as usize) as u32;
        if self.late >= LATE_MAX {
            self.park();
        }
    }

    #[cold]
    fn park(&mut self) {
        if self.served < SERVED_MANY {
            self.wait_longer();
        } else {
            self.samples_min = SAMPLES_MIN;
        }
        (self.source, self.samples) = (None, 0);
        self.late = 0;
        if self.socket.connect(&self.nowhere, self.scope_id).is_ok() {
            self.state = State::Parking;
        }
    }

    fn wait_longer(&mut self) {
        (self.samples, self.samples_min) = (0, (2 * self.samples_min).min(SAMPLES_MAX));
    }
}
