//! Measures the ways from an agent's rails to those of other hosts.

use super::connect::connect_from;
use super::endpoint::{overhead, Endpoint, Shared};
use super::messages::{Contact, Measure, Purpose, Target, Tcp};
use super::packet::{Head, ANY_HOST, HEAD};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// Tries of a contact, and the time between them: together longer than the second after which a
/// kernel repeats a lost request for a link address.
const CONTACTS: u32 = 15;
const CONTACT_EACH: Duration = Duration::from_millis(100);
/// Packets to a group.
const GROUP_PACKETS: u32 = 3;
/// Tries of a connection by TCP, and the longest wait for each: a kernel repeats a lost request
/// only after a second.
const CONNECTS: u32 = 5;
const CONNECT: Duration = Duration::from_millis(300);

/// Round trips measured, and the longest wait for one.
const ROUND_TRIPS: usize = 20;
const ROUND_TRIP: Duration = Duration::from_millis(50);
/// Round trips without an answer after which no more are measured.
const MISSED_MAX: usize = 4;
/// Packets of each size, and the wait for their answers.
const OF_EACH_SIZE: usize = 4;
const SIZES: Duration = Duration::from_millis(150);
/// Packets in flight, windows of them, and the longest wait for a window.
const WINDOW: usize = 16;
const WINDOWS: usize = 20;
const WINDOW_WAIT: Duration = Duration::from_millis(20);
/// Bytes of a packet that is sent for the loss, with the heads.
const LOSS_BYTES: u16 = 512;
/// Length of a burst by TCP, and the longest wait for its end.
const BURST: Duration = Duration::from_millis(40);
const BURST_END: Duration = Duration::from_millis(600);

/// A way to a rail of another host.
struct Way<'a> {
    shared: &'a Shared,
    from: &'a Endpoint,
    target: &'a Target,
}

impl Way<'_> {
    /// Sends a request of `ip_len` bytes; returns its number.
    fn send(&self, purpose: Purpose, ip_len: u16) -> u32 {
        self.send_by(&self.from.udp, self.target.udp, purpose, ip_len)
    }

    fn send_by(&self, by: &UdpSocket, to: SocketAddr, purpose: Purpose, ip_len: u16) -> u32 {
        let number = self.shared.number();
        let head = Head {
            run: self.shared.run,
            answer: false,
            purpose,
            from_host: self.shared.host,
            from_rail: self.target.from,
            to_host: self.target.host,
            number,
        };
        let mut bytes = head.bytes().to_vec();
        let len = usize::from(ip_len).saturating_sub(overhead(&to.ip()));
        bytes.resize(len.max(HEAD), 0);
        // The missing answer tells of a failure.
        let _ = by.send_to(&bytes, scoped(to, self.from));
        number
    }

    fn connect(&self, longest: Duration) -> Result<TcpStream, Tcp> {
        let to = self.target.tcp.ok_or(Tcp::Untried)?;
        connect_from(self.from.interface.ip, scoped(to, self.from), longest)
    }

    fn contact_by_tcp(&self) -> Tcp {
        for _ in 0..CONNECTS {
            match self.connect(CONNECT) {
                Ok(_) => return Tcp::Open,
                Err(Tcp::Silent) => {}
                Err(why) => return why,
            }
        }
        Tcp::Silent
    }

    /// Sorted round trips in microseconds.
    fn round_trips(&self) -> Vec<f64> {
        let (mut all, mut missed) = (Vec::new(), 0);
        while all.len() + missed < ROUND_TRIPS && missed < MISSED_MAX {
            let sent = Instant::now();
            let number = self.send(Purpose::RoundTrip, 0);
            match self.shared.wait(&[number], ROUND_TRIP)[0] {
                Some(back) => all.push(back.saturating_duration_since(sent).as_secs_f64() * 1e6),
                None => missed += 1,
            }
        }
        all.sort_by(f64::total_cmp);
        all
    }

    /// Sends packets of all sizes.
    fn sizes(&self) {
        let mut numbers = Vec::new();
        for &size in &self.target.sizes {
            numbers.extend((0..OF_EACH_SIZE).map(|_| self.send(Purpose::Size, size)));
        }
        self.shared.wait(&numbers, SIZES);
    }

    /// Sends packets whose arrival the other host counts; returns their number.
    fn loss(&self) -> u32 {
        for _ in 0..WINDOWS {
            let window: Vec<u32> = (0..WINDOW)
                .map(|_| self.send(Purpose::Loss, LOSS_BYTES))
                .collect();
            self.shared.wait(&window, WINDOW_WAIT);
        }
        (WINDOWS * WINDOW) as u32
    }

    /// The rate of a short burst in Mbit/s.
    fn burst(&self) -> Option<f64> {
        let mut stream = self.connect(BURST_END).ok()?;
        stream.set_write_timeout(Some(BURST_END)).ok()?;
        stream.set_read_timeout(Some(BURST_END)).ok()?;
        let head = Head {
            run: self.shared.run,
            answer: false,
            purpose: Purpose::Contact,
            from_host: self.shared.host,
            from_rail: self.target.from,
            to_host: self.target.host,
            number: 0,
        };
        stream.write_all(&head.bytes()).ok()?;
        let (started, bytes) = (Instant::now(), vec![0; 1 << 16]);
        while started.elapsed() < BURST {
            stream.write_all(&bytes).ok()?;
        }
        stream.shutdown(Shutdown::Write).ok()?;
        let mut words = [0; 16];
        stream.read_exact(&mut words).ok()?;
        let word = |at: usize| words[at..].first_chunk().map(|b| u64::from_le_bytes(*b));
        let (bytes, ns) = (word(0)?, word(8)?);
        (ns > 0).then(|| bytes as f64 * 8e3 / ns as f64)
    }

    fn measure(&self) -> Measure {
        let trips = self.round_trips();
        self.sizes();
        Measure {
            sent: self.loss(),
            rtt_min_us: trips.first().copied(),
            rtt_median_us: trips.get(trips.len() / 2).copied(),
            mbit_per_s: self.burst(),
        }
    }
}

/// A link-local address of another host, in the scope of this host's interface.
fn scoped(to: SocketAddr, from: &Endpoint) -> SocketAddr {
    match to {
        SocketAddr::V6(mut v6) if v6.ip().is_unicast_link_local() => {
            v6.set_scope_id(from.interface.scope_id);
            v6.into()
        }
        other => other,
    }
}

/// The ways to targets; targets from rails that are not open have none.
fn ways<'a>(
    shared: &'a Shared,
    endpoints: &'a [Option<Endpoint>],
    targets: &'a [Target],
) -> Vec<Option<Way<'a>>> {
    let way = |target: &'a Target| {
        let from = endpoints.get(usize::from(target.from))?.as_ref()?;
        Some(Way {
            shared,
            from,
            target,
        })
    };
    targets.iter().map(way).collect()
}

/// Finds out which targets answer, all at the same time, and sends to the groups of all rails.
pub fn contact(
    shared: &Shared,
    endpoints: &[Option<Endpoint>],
    targets: &[Target],
) -> Vec<Contact> {
    let ways = ways(shared, endpoints, targets);
    thread::scope(|scope| {
        let by_tcp: Vec<_> = ways
            .iter()
            .map(|way| scope.spawn(|| way.as_ref().map_or(Tcp::Untried, Way::contact_by_tcp)))
            .collect();
        let answered = contact_by_udp(shared, endpoints, &ways);
        let tcp = by_tcp.into_iter().map(|t| t.join().unwrap_or_default());
        let both = answered.into_iter().zip(tcp);
        both.map(|(answered, tcp)| Contact { answered, tcp })
            .collect()
    })
}

fn contact_by_udp(
    shared: &Shared,
    endpoints: &[Option<Endpoint>],
    ways: &[Option<Way<'_>>],
) -> Vec<bool> {
    let mut numbers: Vec<Vec<u32>> = vec![Vec::new(); ways.len()];
    let mut any_port: Vec<Vec<u32>> = vec![Vec::new(); ways.len()];
    let answered = |numbers: &[u32]| {
        let times = shared.wait(numbers, Duration::ZERO);
        times.iter().any(Option::is_some)
    };
    for at in 0..CONTACTS {
        if at < GROUP_PACKETS {
            send_to_groups(shared, endpoints);
        }
        let mut last = Vec::new();
        for (at, way) in ways.iter().enumerate() {
            let Some(way) = way else { continue };
            if !answered(&numbers[at]) {
                let number = way.send(Purpose::Contact, 0);
                numbers[at].push(number);
                last.push(number);
            }
            let pair = way.from.any_port.as_ref().zip(way.target.any_port);
            if let Some((by, to)) = pair.filter(|_| !answered(&any_port[at])) {
                let number = way.send_by(by, to, Purpose::AnyPort, 0);
                any_port[at].push(number);
                last.push(number);
            }
        }
        if last.is_empty() && at >= GROUP_PACKETS {
            break;
        }
        shared.wait(&last, CONTACT_EACH);
    }
    numbers.iter().map(|numbers| answered(numbers)).collect()
}

fn send_to_groups(shared: &Shared, endpoints: &[Option<Endpoint>]) {
    for (at, endpoint) in endpoints.iter().enumerate() {
        let Some((endpoint, group)) = endpoint.as_ref().and_then(|e| Some((e, e.group?))) else {
            continue;
        };
        let head = Head {
            run: shared.run,
            answer: false,
            purpose: Purpose::Group,
            from_host: shared.host,
            from_rail: at as u8,
            to_host: ANY_HOST,
            number: shared.number(),
        };
        let _ = endpoint.udp.send_to(&head.bytes(), scoped(group, endpoint));
    }
}

/// Measures the ways to all targets, at the same time.
pub fn measure(
    shared: &Shared,
    endpoints: &[Option<Endpoint>],
    targets: &[Target],
) -> Vec<Measure> {
    let ways = ways(shared, endpoints, targets);
    thread::scope(|scope| {
        let all: Vec<_> = ways
            .iter()
            .map(|way| scope.spawn(|| way.as_ref().map(Way::measure).unwrap_or_default()))
            .collect();
        let done = all.into_iter().map(|t| t.join().unwrap_or_default());
        done.collect()
    })
}
