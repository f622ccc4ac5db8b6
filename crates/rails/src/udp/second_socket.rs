//! A second receiving socket, connected to the source of nearly all packets.
//!
//! The kernel assigns a datagram from a connected socket's peer before routing, which saves the
//! look-ups of a route and of a socket (`net.ipv4.udp_early_demux`). Over veth this saves time in
//! the sender's softirq, on a real link on the receiver's processor (docs/design/udp.md).
//!
//! The socket shares the rail's port. All other packets arrive on the main socket, which is then
//! polled less often. The second socket is therefore used only while one source dominates, and is
//! parked (connected to an address from which nothing arrives) as soon as too many packets arrive
//! on the main socket. It is reconnected and never closed, so that packets waiting in it are not
//! lost. It also receives ICMP errors about packets from the rail's port to that source, which the
//! sending half reads.

use super::read::Feed;
use crate::addr::UdpAddr;
use crate::sys::{Errno, Socket, SocketOptions};
use std::sync::Arc;

/// Consecutive samples of one source before the second socket is connected to that source. Few
/// suffice, since sources are sampled once per `DROP_LOOK_PERIOD` datagrams.
const SAMPLES_MIN: u32 = 2;
/// Each early parking doubles the samples required for the next connection, up to this number.
const SAMPLES_MAX: u32 = 1 << 12;
/// A connection that served this many datagrams was useful, and counts as not parked early.
const SERVED_MANY: u32 = 1 << 16;
/// Weight of a datagram that waited in the main socket, against datagrams of the second socket. The
/// second socket is parked when the balance reaches [`LATE_MAX`]: if more than a fifth of all
/// datagrams wait, or after eight in a row. Each waits for at most 16 polls.
const LATE_WEIGHT: u32 = 4;
const LATE_MAX: u32 = 32;
/// The discard port (RFC 863), from which nothing arrives.
const NOWHERE: u16 = 9;

/// Which socket is read first, and which only from time to time. After a change, the socket that
/// received the earlier packets is read until it is empty, which preserves the order unless both
/// hold more than one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The second socket receives nothing and is empty.
    Parked,
    /// The source is connected; the main socket may still hold some of its datagrams.
    Connecting,
    /// The source is connected.
    Connected,
    /// The source is disconnected; the second socket may still hold its datagrams.
    Parking,
}

/// The address to which a parked socket of `local` is connected.
pub(super) fn nowhere(local: &UdpAddr) -> UdpAddr {
    UdpAddr {
        port: NOWHERE,
        ..*local
    }
}

/// The second socket and its source.
pub(super) struct SecondSocket {
    pub(super) socket: Arc<Socket>,
    pub(super) feed: Feed,
    nowhere: UdpAddr,
    scope_id: u32,
    state: State,
    /// The source of the last samples, their number, and the number required.
    source: Option<UdpAddr>,
    samples: u32,
    samples_min: u32,
    late: u32,
    served: u32,
}

impl SecondSocket {
    /// Opens the socket, parked, beside the main one: with its options and its address `local`.
    /// `gro`: the main socket has GRO.
    pub(super) fn open(
        (main, local): (&Socket, &UdpAddr),
        options: &SocketOptions<'_>,
        gro: bool,
    ) -> Result<SecondSocket, Errno> {
        let options = SocketOptions {
            port: local.port,
            send_bytes: 0,
            ..*options
        };
        let socket = Socket::open_beside(main, &options)?;
        if gro {
            socket.enable_gro()?;
        }
        let _ = socket.enable_drop_count(); // as on the main socket
        let nowhere = nowhere(local);
        socket.connect(&nowhere, options.scope_id)?;
        Ok(SecondSocket {
            socket: Arc::new(socket),
            feed: Feed::default(),
            nowhere,
            scope_id: options.scope_id,
            // The socket may hold packets that arrived before it was connected.
            state: State::Parking,
            source: None,
            samples: 0,
            samples_min: SAMPLES_MIN,
            late: 0,
            served: 0,
        })
    }

    /// Returns whether this socket is read first.
    #[inline]
    pub(super) fn is_first(&self) -> bool {
        matches!(self.state, State::Connected | State::Parking)
    }

    /// Returns whether this socket may hold or receive packets.
    pub(super) fn is_used(&self) -> bool {
        self.state != State::Parked
    }

    /// The socket that is read first was empty; returns whether the other one is read first from
    /// now on.
    #[inline]
    pub(super) fn on_empty(&mut self) -> bool {
        self.state = match self.state {
            State::Parked | State::Connected => return false,
            State::Connecting => State::Connected,
            State::Parking => State::Parked,
        };
        true
    }

    /// Records the source of a datagram on the main socket.
    pub(super) fn sample(&mut self, source: &UdpAddr) {
        if self.state != State::Parked {
            return;
        }
        if self.source != Some(*source) {
            (self.source, self.samples) = (Some(*source), 0);
        }
        self.samples += 1;
        if self.samples >= self.samples_min {
            self.connect_to_source();
        }
    }

    #[cold]
    fn connect_to_source(&mut self) {
        // A source without a route is ignored.
        let Some(source) = self.source else { return };
        if self.socket.connect(&source, self.scope_id).is_ok() {
            (self.state, self.late, self.served) = (State::Connecting, 0, 0);
        } else {
            self.wait_longer();
        }
    }

    /// Counts datagrams of this socket.
    #[inline]
    pub(super) fn heard(&mut self, count: usize) {
        self.late = self.late.saturating_sub(count as u32);
        self.served = self.served.saturating_add(count as u32);
    }

    /// Counts datagrams that waited in the main socket.
    pub(super) fn waited(&mut self, count: usize) {
        if self.state != State::Connected {
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
