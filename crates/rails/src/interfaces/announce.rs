//! Announces a rail's address to neighbours after an outage (docs/design/udp.md).
//!
//! A host that loses carrier drops its neighbour entries. If it sends before the carrier is back,
//! its kernel's ARP request is lost and repeated only after a second. But every ARP request also
//! contains the sender's addresses, and a host that waits for that sender's address takes it from
//! any request (RFC 826). So an empty datagram makes our kernel request an unused address. With
//! IPv6 only the solicited host receives a request, so this does not work there.
//!
//! A rail whose peers are silent does the same while the silence lasts: the network between them or
//! the peer's link may already be back while the peer's kernel waits for its next ARP request.

use crate::addr::UdpAddr;
use crate::sys::{send_on_link, SocketOptions};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant, SystemTime};

/// The first pause between announcements; each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(10);
/// The last announcement is after 630 ms; from then on the kernel repeats its own request once a
/// second.
const TIMES: u32 = 7;
/// Minimum time of silence before an announcement, and minimum interval: a shorter silence may be a
/// descheduled peer.
const STEP_NS: u64 = 100_000_000;
/// Share of the silence so far that is the interval between announcements: a recovered network is
/// noticed before the outage has become longer by a sixteenth.
const SHARE: u64 = 16;
/// but at most the interval at which kernels repeat ARP requests.
const MOST_NS: u64 = 1_000_000_000;
/// Callers report a silent peer ten times a second. Without a report for this long the silence is
/// over.
const OVER_NS: u64 = 1_500_000_000;
/// The destination port of announcements (discard service).
const DISCARD: u16 = 9;

/// Announcements of a rail that came back.
#[derive(Debug)]
pub(super) struct Announcements {
    back: Instant,
    said: u32,
}

impl Announcements {
    /// Starts at the time of the rail's return.
    pub(super) fn new() -> Announcements {
        Announcements {
            back: Instant::now(),
            said: 0,
        }
    }

    /// Announces once more if due. Returns whether more announcements follow.
    pub(super) fn announce(&mut self, ip: IpAddr, interface: &str) -> bool {
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

/// Schedules announcements of a rail whose peers are silent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silence {
    /// Times in ns: start of the silence, last report, last announcement.
    times: Option<[u64; 3]>,
}

impl Silence {
    /// Reports that a peer is silent; returns whether to announce now. The first announcement waits
    /// until the peer cannot merely be descheduled; later ones become less frequent, down to once a
    /// second.
    pub fn note(&mut self, now_ns: u64) -> bool {
        let Some([since, noted, announced]) = &mut self.times else {
            self.times = Some([now_ns; 3]);
            return false;
        };
        if now_ns.saturating_sub(*noted) > OVER_NS {
            self.times = Some([now_ns; 3]);
            return false;
        }
        *noted = now_ns;
        let pause_ns = ((now_ns - *since) / SHARE).clamp(STEP_NS, MOST_NS);
        let due = now_ns - *announced >= pause_ns;
        if due {
            *announced = now_ns;
        }
        due
    }
}

/// Announcements of a rail of this host.
#[derive(Debug)]
pub(crate) struct SilentPeers {
    born: Instant,
    silence: Silence,
}

impl SilentPeers {
    /// Starts without silence.
    pub(crate) fn none() -> SilentPeers {
        SilentPeers {
            born: Instant::now(),
            silence: Silence::default(),
        }
    }

    /// Reports that the peers of a rail with this address and interface are silent.
    pub(crate) fn note(&mut self, ip: IpAddr, interface: &str) {
        let now_ns = self.born.elapsed().as_nanos() as u64;
        if self.silence.note(now_ns) && ip.is_ipv4() {
            ask_nobody(ip, interface, Duration::from_nanos(STEP_NS));
        }
    }
}

/// Makes the kernel send an ARP request for an unused address on an interface.
fn ask_nobody(ip: IpAddr, interface: &str, step: Duration) {
    let options = SocketOptions {
        ip,
        port: 0,
        scope_id: 0,
        interface,
        receive_bytes: 0,
        send_bytes: 0,
        dscp: 0,
    };
    // An error means that the rail is down again.
    let _ = send_on_link(&options, &nobody(step));
}

/// Unused addresses, which take turns. A kernel gives an address up after three requests, one a
/// second, and sends no further one for it until then: with a step of [`STEP_NS`] its turn comes
/// later than that. More addresses would fill the table of neighbours of a host with several rails
/// (`gc_thresh3`, 1,024 entries). With this number all [`TIMES`] announcements of a rail that came
/// back, up to 63 steps after the first, ask for different addresses.
const UNUSED: u128 = 33;

/// An unused address (TEST-NET-1, RFC 5737). It differs in each time step, since the kernel
/// requests one address only once a second; processes that announce together use the same address.
fn nobody(step: Duration) -> UdpAddr {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    unused(since.unwrap_or_default().as_millis() / step.as_millis())
}

/// The unused address of a time step.
fn unused(turn: u128) -> UdpAddr {
    let ip = Ipv4Addr::new(192, 0, 2, 1 + (turn % UNUSED) as u8);
    UdpAddr::new(ip.into(), DISCARD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn few_addresses_are_asked_for_and_none_before_the_kernel_has_given_it_up() {
        let all: BTreeSet<_> = (0..1_000).map(|turn| unused(turn).to_string()).collect();
        assert_eq!(all.len() as u128, UNUSED);
        let given_up_ns = 3_000_000_000;
        assert!(UNUSED as u64 * STEP_NS > given_up_ns);
        let first = 7;
        let times = (0..TIMES).map(|said| (1 << said) - 1);
        let asked: BTreeSet<_> = times.map(|at| unused(first + at).to_string()).collect();
        assert_eq!(asked.len() as u32, TIMES);
    }
}
