//! A rail that is back tells its neighbours where it is (docs/design/udp.md).
//!
//! With its carrier a host forgets the addresses of its neighbours' cards. If it sends before the
//! carrier is back its kernel asks for them in vain, and asks again after a second. But every
//! question says where the one who asks is, and whoever waits for just that takes it from there,
//! whoever was asked (RFC 826). So we have our kernel ask for an address that nobody has, by an
//! empty datagram. IPv6 asks only those who may be meant, and has to wait.

use crate::addr::UdpAddr;
use crate::sys::{send_on_link, SocketOptions};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant, SystemTime};

/// The first pause; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(10);
/// The last is said after 630 ms: the kernel then goes on, once a second.
const TIMES: u32 = 7;
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
            let options = SocketOptions {
                ip,
                port: 0,
                scope_id: 0,
                interface,
                receive_bytes: 0,
                send_bytes: 0,
            };
            // A rail that is gone again tells nothing.
            let _ = send_on_link(&options, &nobody());
        }
        self.said < TIMES
    }
}

/// An address that nobody has (RFC 5737), another one every time, as an address is asked for once a
/// second: processes that tell together have the same.
fn nobody() -> UdpAddr {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let turn = since.unwrap_or_default().as_millis() / PAUSE.as_millis();
    let ip = Ipv4Addr::new(192, 0, 2, 1 + (turn % 254) as u8);
    UdpAddr::new(ip.into(), DISCARD)
}
