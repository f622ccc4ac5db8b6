//! A rail that is back tells its neighbours where it is (docs/design/udp.md).
//!
//! With its carrier a host forgets the addresses of its neighbours' cards. If it sends before the
//! carrier is back its kernel asks for them in vain, and asks again after a second. But every
//! question says where the one who asks is, and whoever waits for just that takes it from there,
//! whoever was asked (RFC 826). So we have our kernel ask for an address that nobody has, by an
//! empty datagram. IPv6 asks only those who may be meant, and has to wait.
//!
//! A rail whose peers are silent does the same, while that lasts: the network between them, or the
//! peer's link, may be back already, and the peer's kernel waits for its second to be over.

use crate::addr::UdpAddr;
use crate::sys::{send_on_link, SocketOptions};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant, SystemTime};

/// The first pause; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(10);
/// The last is said after 630 ms: the kernel then goes on, once a second.
const TIMES: u32 = 7;
/// Of a silence something is told after this at the soonest, and so often at most: peers are off
/// their processors for less.
const STEP_NS: u64 = 100_000_000;
/// And this part of it later again, so that a network which is back is noticed before its outage
/// has lasted a sixteenth longer,
const SHARE: u64 = 16;
/// but not less often than a kernel asks that needs an address.
const MOST_NS: u64 = 1_000_000_000;
/// A silence that was not noted for so long is over: it is noted ten times a second.
const OVER_NS: u64 = 1_500_000_000;
/// The port for what is not to be read.
const DISCARD: u16 = 9;

/// Questions that a rail which came back still has its kernel ask.
#[derive(Debug)]
pub(super) struct Telling {
    back: Instant,
    said: u32,
}

impl Telling {
    /// The rail has come back now.
    pub(super) fn new() -> Telling {
        Telling {
            back: Instant::now(),
            said: 0,
        }
    }

    /// Tells once more, if it is time for that. Returns whether there is more to tell later.
    pub(super) fn tell(&mut self, ip: IpAddr, interface: &str) -> bool {
        if ip.is_ipv6() {
            return false;
        }
        if self.back.elapsed() >= PAUSE * ((1 << self.said) - 1) {
            self.said += 1;
            ask_nobody(ip, interface, PAUSE);
        }
        self.said < TIMES
    }
}

/// When neighbours are told of a rail whose peers are silent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silence {
    /// Since when, when it was noted last, and when something was told last.
    times: Option<[u64; 3]>,
}

impl Silence {
    /// A peer is silent now; whether neighbours are told. (Not in the time in which it may be off
    /// its processor, and ever less of a long silence, but as often as a kernel asks.)
    pub fn note(&mut self, now_ns: u64) -> bool {
        let Some([since, noted, told]) = &mut self.times else {
            self.times = Some([now_ns; 3]);
            return false;
        };
        if now_ns.saturating_sub(*noted) > OVER_NS {
            self.times = Some([now_ns; 3]);
            return false;
        }
        *noted = now_ns;
        let pause_ns = ((now_ns - *since) / SHARE).clamp(STEP_NS, MOST_NS);
        let tells = now_ns - *told >= pause_ns;
        if tells {
            *told = now_ns;
        }
        tells
    }
}

/// The same of a rail of this host.
#[derive(Debug)]
pub(crate) struct SilentPeers {
    born: Instant,
    silence: Silence,
}

impl SilentPeers {
    /// None is.
    pub(crate) fn none() -> SilentPeers {
        SilentPeers {
            born: Instant::now(),
            silence: Silence::default(),
        }
    }

    /// A rail of this address and interface is silent now.
    pub(crate) fn note(&mut self, ip: IpAddr, interface: &str) {
        let now_ns = self.born.elapsed().as_nanos() as u64;
        if self.silence.note(now_ns) && ip.is_ipv4() {
            ask_nobody(ip, interface, Duration::from_nanos(STEP_NS));
        }
    }
}

/// Has the kernel ask for an address of nobody by an interface.
fn ask_nobody(ip: IpAddr, interface: &str, step: Duration) {
    let options = SocketOptions {
        ip,
        port: 0,
        scope_id: 0,
        interface,
        receive_bytes: 0,
        send_bytes: 0,
    };
    // A rail that is gone again tells nothing.
    let _ = send_on_link(&options, &nobody(step));
}

/// An address that nobody has (RFC 5737), another one in each step of time, as an address is asked
/// for once a second: processes that tell together have the same.
fn nobody(step: Duration) -> UdpAddr {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let turn = since.unwrap_or_default().as_millis() / step.as_millis();
    let ip = Ipv4Addr::new(192, 0, 2, 1 + (turn % 254) as u8);
    UdpAddr::new(ip.into(), DISCARD)
}
