//! The sockets of an agent on one rail, and the threads that answer on them.

use super::messages::{HostRail, Purpose, Row};
use super::packet::{Head, ANY_HOST, HEAD};
use marline_rails::{probe_group, probe_socket, InterfaceChoice, Ports};
use rustix::net::sockopt;
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Errors of a socket in a row after which its thread ends.
const ERRORS_MAX: u32 = 100;
/// Send buffer in bytes: packets stay in it while the kernel asks for a link address.
const SEND_BYTES: usize = 1 << 20;
/// Longest wait for room in the send buffer; a packet without room counts as lost.
const SEND: Duration = Duration::from_millis(10);
/// Longest silence of a burst by TCP.
const BURST_SILENCE: Duration = Duration::from_secs(1);

/// A kind of received packets: sending host, its rail, our rail, purpose.
type Received = (u16, u8, u8, Purpose);

/// The things that all threads of an agent share.
pub struct Shared {
    /// Number of the run.
    pub run: u64,
    /// The own host's number.
    pub host: u16,
    /// Number and longest length in bytes of received packets.
    tally: Mutex<BTreeMap<Received, (u32, u16)>>,
    answers: Mutex<HashMap<u32, Instant>>,
    answered: Condvar,
    numbers: AtomicU32,
}

/// Takes a lock; a panic of another thread does no harm to these tables.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Empty tables.
    pub fn new(run: u64, host: u16) -> Shared {
        Shared {
            run,
            host,
            tally: Mutex::default(),
            answers: Mutex::default(),
            answered: Condvar::new(),
            numbers: AtomicU32::new(0),
        }
    }

    /// The number of a new request.
    pub fn number(&self) -> u32 {
        self.numbers.fetch_add(1, Relaxed)
    }

    /// Waits until all these requests are answered, or for this long. Returns the answers' times.
    pub fn wait(&self, numbers: &[u32], longest: Duration) -> Vec<Option<Instant>> {
        let missing = |known: &mut HashMap<u32, Instant>| {
            let mut numbers = numbers.iter();
            !numbers.all(|number| known.contains_key(number))
        };
        let waited = self
            .answered
            .wait_timeout_while(lock(&self.answers), longest, missing);
        let (known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        numbers.iter().map(|n| known.get(n).copied()).collect()
    }

    /// The packets that arrived.
    pub fn rows(&self) -> Vec<Row> {
        let tally = lock(&self.tally);
        let rows = tally
            .iter()
            .map(|(&(host, rail, at, purpose), &(count, longest))| Row {
                host,
                rail,
                at,
                purpose,
                count,
                longest,
            });
        rows.collect()
    }

    /// Counts a request that arrived, or notes an answer. Returns the answer to send.
    fn take(&self, at: u8, head: Head, ip_len: usize) -> Option<Head> {
        if head.answer {
            if head.from_host == self.host {
                lock(&self.answers).insert(head.number, Instant::now());
                self.answered.notify_all();
            }
            return None;
        }
        if head.from_host == self.host || ![self.host, ANY_HOST].contains(&head.to_host) {
            return None;
        }
        let key = (head.from_host, head.from_rail, at, head.purpose);
        let mut tally = lock(&self.tally);
        let (count, longest) = tally.entry(key).or_default();
        *count += 1;
        *longest = (*longest).max(ip_len.min(usize::from(u16::MAX)) as u16);
        (head.to_host != ANY_HOST).then_some(Head {
            answer: true,
            ..head
        })
    }
}

/// Bytes of the heads of IP and UDP before a packet.
pub fn overhead(ip: &IpAddr) -> usize {
    match ip {
        IpAddr::V4(_) => 28,
        IpAddr::V6(_) => 48,
    }
}

/// A rail that is open.
pub struct Endpoint {
    /// Its interface.
    pub interface: InterfaceChoice,
    /// On a port of a job.
    pub udp: Arc<UdpSocket>,
    /// On any port, where jobs have a range.
    pub any_port: Option<Arc<UdpSocket>>,
    /// The multicast group.
    pub group: Option<SocketAddr>,
    tcp: Option<SocketAddr>,
}

impl Endpoint {
    /// Opens a rail, the agent's number `at`, and starts its threads.
    pub fn open(
        at: u8,
        interface: &InterfaceChoice,
        range: Option<(u16, u16)>,
        shared: &Arc<Shared>,
    ) -> Result<Endpoint, String> {
        let ports = range.map_or(Ports::ANY, |(least, most)| {
            Ports::range(least, most, std::process::id())
        });
        let udp = serve(at, shared, probe_socket(interface, ports)?);
        let own = udp.local_addr().map_err(|e| e.to_string())?;
        let any_port = match range {
            Some(_) => Some(serve(at, shared, probe_socket(interface, Ports::ANY)?)),
            None => None,
        };
        let group = probe_group(interface, ports, own)
            .ok()
            .map(|(member, group)| {
                serve(at, shared, member);
                group
            });
        // The port of the UDP socket most likely is free for TCP as well.
        let listener = TcpListener::bind(own).or_else(|e| match range {
            Some(_) => Err(e),
            None => TcpListener::bind(SocketAddr::new(own.ip(), 0)),
        });
        let tcp = listener.ok().and_then(|listener| {
            let addr = listener.local_addr().ok();
            let run = shared.run;
            thread::spawn(move || accept(&listener, run));
            addr
        });
        let interface = interface.clone();
        Ok(Endpoint {
            interface,
            udp,
            any_port,
            group,
            tcp,
        })
    }

    /// The rail in words for the coordinator.
    pub fn describe(&self, rail: HostRail) -> HostRail {
        HostRail {
            udp: self.udp.local_addr().ok(),
            any_port: self.any_port.as_ref().and_then(|s| s.local_addr().ok()),
            tcp: self.tcp,
            multicast: self.group.is_some(),
            ..rail
        }
    }
}

/// Starts the thread of a socket.
fn serve(at: u8, shared: &Arc<Shared>, socket: UdpSocket) -> Arc<UdpSocket> {
    // Without these options a packet may wait for seconds for a host that is not there.
    let _ = sockopt::set_socket_send_buffer_size(&socket, SEND_BYTES);
    let _ = socket.set_write_timeout(Some(SEND));
    let (shared, socket) = (shared.clone(), Arc::new(socket));
    let served = socket.clone();
    thread::spawn(move || {
        let mut bytes = vec![0; usize::from(u16::MAX)];
        let mut errors = 0;
        while errors < ERRORS_MAX {
            let Ok((len, from)) = socket.recv_from(&mut bytes) else {
                errors += 1;
                continue;
            };
            errors = 0;
            let head = Head::read(&bytes[..len], shared.run);
            let answer = head.and_then(|h| shared.take(at, h, len + overhead(&from.ip())));
            if let Some(answer) = answer {
                // A lost answer is noticed where it is missing.
                let _ = socket.send_to(&answer.bytes(), from);
            }
        }
    });
    served
}

fn accept(listener: &TcpListener, run: u64) {
    for stream in listener.incoming().flatten() {
        thread::spawn(move || take_burst(stream, run));
    }
}

/// Reads a burst to its end, and answers with its bytes and nanoseconds.
fn take_burst(mut stream: TcpStream, run: u64) -> Option<()> {
    stream.set_read_timeout(Some(BURST_SILENCE)).ok()?;
    let mut head = [0; HEAD];
    stream.read_exact(&mut head).ok()?;
    Head::read(&head, run)?;
    let (mut bytes, started) = (vec![0; 1 << 16], Instant::now());
    let mut total: u64 = 0;
    loop {
        match stream.read(&mut bytes).ok()? {
            0 => break,
            len => total += len as u64,
        }
    }
    let ns = started.elapsed().as_nanos() as u64;
    let words = [total.to_le_bytes(), ns.to_le_bytes()].concat();
    stream.write_all(&words).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(from_host: u16, to_host: u16) -> Head {
        Head {
            run: 5,
            answer: false,
            purpose: Purpose::Contact,
            from_host,
            from_rail: 1,
            to_host,
            number: 0,
        }
    }

    #[test]
    fn requests_are_counted_by_sender_and_answered() {
        let shared = Shared::new(5, 2);
        let answer = shared.take(0, head(1, 2), 60).unwrap();
        assert!(answer.answer && answer.from_host == 1);
        assert_eq!(shared.take(0, head(1, ANY_HOST), 90), None, "of a group");
        assert_eq!(shared.take(0, head(1, 3), 60), None, "for another host");
        assert_eq!(shared.take(0, head(2, ANY_HOST), 60), None, "its own");
        let rows = shared.rows();
        assert_eq!((rows.len(), rows[0].count, rows[0].longest), (1, 2, 90));
    }

    #[test]
    fn only_answers_to_own_requests_end_a_wait() {
        let shared = Shared::new(5, 2);
        let number = shared.number();
        let answer = |from_host| Head {
            answer: true,
            number,
            ..head(from_host, 1)
        };
        shared.take(0, answer(1), 60);
        assert_eq!(shared.wait(&[number], Duration::ZERO), [None]);
        shared.take(0, answer(2), 60);
        assert!(shared.wait(&[number], Duration::ZERO)[0].is_some());
    }
}
