//! The rails there are, as enums: a branch that predicts well instead of a vtable.

use crate::choose::InterfaceChoice;
use crate::faulty::{Clock, FaultScript, Faulty, FaultyRx, FaultyTx};
use crate::udp::{UdpConfig, UdpRail, UdpRx, UdpTx};
use crate::{Caps, Rail, RailEvent, RailRx, RailTx, Received, SendOutcome, Write};
use marline_wire::RailAddr;

/// A rail of any kind.
pub enum AnyRail {
    /// UDP.
    Udp(Box<UdpRail>),
    /// UDP with faults injected.
    FaultyUdp(Box<Faulty<UdpRail>>),
}

/// Sending half of a rail of any kind.
#[allow(clippy::large_enum_variant)] // made once and kept in place; a box would cost every send
pub enum AnyTx {
    /// UDP.
    Udp(UdpTx),
    /// UDP with faults injected.
    FaultyUdp(Box<FaultyTx<UdpTx>>),
}

/// Receiving half of a rail of any kind.
pub enum AnyRx {
    /// UDP.
    Udp(UdpRx),
    /// UDP with faults injected.
    FaultyUdp(Box<FaultyRx<UdpRx>>),
}

impl AnyRail {
    /// Opens the UDP rail number `index` on `interface`, with the faults that the scripts hold
    /// for it. `clock` gives nanoseconds from any start, and is called only where faults need it.
    pub fn open_udp(
        index: u8,
        interface: &InterfaceChoice,
        config: &UdpConfig,
        faults: &[FaultScript],
        clock: &Clock,
    ) -> Result<AnyRail, String> {
        let script = faults.iter().find(|script| script.applies_to(index));
        let config = UdpConfig {
            // Faults happen to datagrams, so that their lengths must be known.
            cmsg: config.cmsg || script.is_some(),
            ..config.clone()
        };
        let rail = UdpRail::open(interface, &config)?;
        Ok(match script {
            None => AnyRail::Udp(Box::new(rail)),
            Some(script) => {
                let script = script.for_rail(index);
                AnyRail::FaultyUdp(Box::new(Faulty::new(rail, &script, clock.clone())))
            }
        })
    }
}

impl Rail for AnyRail {
    type Tx = AnyTx;
    type Rx = AnyRx;

    fn split(self) -> (AnyTx, AnyRx) {
        match self {
            AnyRail::Udp(rail) => {
                let (tx, rx) = rail.split();
                (AnyTx::Udp(tx), AnyRx::Udp(rx))
            }
            AnyRail::FaultyUdp(rail) => {
                let (tx, rx) = rail.split();
                (
                    AnyTx::FaultyUdp(Box::new(tx)),
                    AnyRx::FaultyUdp(Box::new(rx)),
                )
            }
        }
    }
}

impl RailTx for AnyTx {
    fn caps(&self) -> Caps {
        match self {
            AnyTx::Udp(tx) => tx.caps(),
            AnyTx::FaultyUdp(tx) => tx.caps(),
        }
    }

    fn local_addr(&self) -> RailAddr {
        match self {
            AnyTx::Udp(tx) => tx.local_addr(),
            AnyTx::FaultyUdp(tx) => tx.local_addr(),
        }
    }

    #[inline]
    fn send(&mut self, to: &RailAddr, bytes: &[u8], segment: usize, flow: u8) -> SendOutcome {
        match self {
            AnyTx::Udp(tx) => tx.send(to, bytes, segment, flow),
            AnyTx::FaultyUdp(tx) => tx.send(to, bytes, segment, flow),
        }
    }

    // Faulty rails have none: faults happen to packets.
    fn write_direct(
        &mut self,
        to: &RailAddr,
        write: &Write<'_>,
        packet: &[u8],
        segment: usize,
        flow: u8,
    ) -> SendOutcome {
        match self {
            AnyTx::Udp(tx) => tx.write_direct(to, write, packet, segment, flow),
            AnyTx::FaultyUdp(_) => SendOutcome::Sent,
        }
    }

    fn grant(&mut self, base: *mut u8, len: usize) -> Option<u64> {
        match self {
            AnyTx::Udp(tx) => tx.grant(base, len),
            AnyTx::FaultyUdp(_) => None,
        }
    }

    fn revoke(&mut self, key: u64) {
        if let AnyTx::Udp(tx) = self {
            tx.revoke(key);
        }
    }

    fn seal(&mut self, key: u64, offset: u64, len: u64) {
        if let AnyTx::Udp(tx) = self {
            tx.seal(key, offset, len);
        }
    }

    fn damaged(&mut self) {
        if let AnyTx::Udp(tx) = self {
            tx.damaged();
        }
    }

    fn landed(&self, key: u64, offset: u64, len: u64) -> bool {
        match self {
            AnyTx::Udp(tx) => tx.landed(key, offset, len),
            AnyTx::FaultyUdp(_) => false,
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<RailEvent> {
        match self {
            AnyTx::Udp(tx) => tx.poll_event(),
            AnyTx::FaultyUdp(tx) => tx.poll_event(),
        }
    }

    fn fd(&self) -> Option<i32> {
        match self {
            AnyTx::Udp(tx) => tx.fd(),
            AnyTx::FaultyUdp(tx) => tx.fd(),
        }
    }
}

impl RailRx for AnyRx {
    #[inline]
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        match self {
            AnyRx::Udp(rx) => rx.recv(sink),
            AnyRx::FaultyUdp(rx) => rx.recv(sink),
        }
    }

    fn recv_rest(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        match self {
            AnyRx::Udp(rx) => rx.recv_rest(sink),
            AnyRx::FaultyUdp(rx) => rx.recv_rest(sink),
        }
    }

    fn rest_fd(&self) -> Option<i32> {
        match self {
            AnyRx::Udp(rx) => rx.rest_fd(),
            AnyRx::FaultyUdp(rx) => rx.rest_fd(),
        }
    }
}
