//! Measures latency, rate and gap between packets of two UDP rails.
//!
//! Both ends poll, like an engine whose application waits. The remote end is a thread of this
//! process, or a `marline tune --serve` on another host.

use crate::outcome::Failure;
use marline_codes::Code;
use marline_engine::profile::RailFigures;
use marline_rails::{
    choose_interfaces, show_addr, InterfaceChoice, LinkId, Links, Ports, Rail, RailRx, RailTx,
    SendOutcome, UdpAddr, UdpConfig, UdpRail, UdpRx, UdpTx,
};
use marline_wire::RailAddr;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A packet: 4 bytes of magic, kind, padding, the reply port (packets may leave by other ports), a
/// number; then filler.
const MAGIC: [u8; 4] = *b"mltn";
const HEAD: usize = 16;
/// Send the packet back.
const ECHO: u8 = 1;
/// Count the packet; reply with the total if the number is not 0.
const STREAM: u8 = 2;
/// The reply to packets of both kinds.
const ANSWER: u8 = 3;

/// Bytes of a small packet, like an eager message of a few bytes with its header.
const SMALL: usize = 128;
/// Unanswered bytes at most: a default receive buffer holds three super-packets.
const WINDOW: u64 = 192 << 10;
/// Small packets per burst: few enough for any receive buffer.
const BURST: usize = 16;
/// Timeout after which a packet counts as lost.
const ANSWER_MAX: Duration = Duration::from_millis(100);
/// Successive losses after which the measurement fails.
const LOSSES_MAX: usize = 50;
/// Empty polls, some 10 µs, before yielding the processor.
const EMPTY_MAX: u32 = 32;
/// Empty polls, some 100 ms, after which the server is idle.
const QUIET: u32 = 200_000;

/// The extent of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of round trips and bursts.
    pub rounds: usize,
    /// Duration of a stream.
    pub stream: Duration,
}

struct End {
    tx: UdpTx,
    /// The most recent link, and its address.
    link: Option<(RailAddr, LinkId)>,
    rx: UdpRx,
    buffer: Vec<u8>,
}

impl End {
    fn open(choice: &InterfaceChoice, port: u16) -> Result<End, String> {
        let config = UdpConfig {
            ports: Ports::one(port),
            ..UdpConfig::default()
        };
        let (tx, rx) = UdpRail::open(choice, &config)?.split();
        let buffer = vec![0; tx.caps().batch_bytes_max.max(SMALL)];
        Ok(End {
            tx,
            link: None,
            rx,
            buffer,
        })
    }

    /// The link to an address; closes the previous one.
    fn link(&mut self, to: &RailAddr) -> LinkId {
        match self.link {
            Some((addr, link)) if addr == *to => link,
            before => {
                let link = self.tx.connect(to).link;
                self.link = Some((*to, link));
                if let Some((_, before)) = before {
                    self.tx.close(before);
                }
                link
            }
        }
    }

    /// Sends `len` bytes as datagrams of `segment` bytes, each with a header.
    fn send(
        &mut self,
        to: &RailAddr,
        kind: u8,
        number: u64,
        len: usize,
        segment: usize,
    ) -> Result<(), String> {
        let port = end_of(&self.tx.local_addr()).map_or(0, |end| end.port());
        for datagram in self.buffer[..len].chunks_mut(segment) {
            write_head(datagram, kind, port, number);
        }
        let link = self.link(to);
        let start = Instant::now();
        loop {
            match self.tx.send(link, &self.buffer[..len], segment, 0) {
                SendOutcome::Sent => return Ok(()),
                SendOutcome::Busy if start.elapsed() < ANSWER_MAX => continue,
                other => return Err(format!("the rail does not send: {other:?}")),
            }
        }
    }
}

fn write_head(datagram: &mut [u8], kind: u8, port: u16, number: u64) {
    if datagram.len() >= HEAD {
        datagram[..4].copy_from_slice(&MAGIC);
        datagram[4..6].copy_from_slice(&[kind, 0]);
        datagram[6..8].copy_from_slice(&port.to_le_bytes());
        datagram[8..HEAD].copy_from_slice(&number.to_le_bytes());
    }
}

/// Kind, port and number of a datagram of this protocol.
fn read_head(datagram: &[u8]) -> Option<(u8, u16, u64)> {
    let number = datagram.get(8..HEAD)?.try_into().ok()?;
    let port = u16::from_le_bytes([datagram[6], datagram[7]]);
    (datagram[..4] == MAGIC).then_some((datagram[4], port, u64::from_le_bytes(number)))
}

/// Yields after several empty polls, since the other end may need this processor.
fn offer(empty: u32) {
    if empty >= EMPTY_MAX {
        std::thread::yield_now();
    }
}

/// Answers until stopped. Calls `idle` after each empty poll with the number of empty polls in a
/// row.
fn answer(end: &mut End, stop: &AtomicBool, idle: impl Fn(u32)) {
    let mut counted = 0u64;
    let mut empty = 0u32;
    while !stop.load(Ordering::Relaxed) {
        let mut answers = Vec::new();
        let taken = end.rx.recv(&mut |received| {
            for datagram in received.bytes.chunks(received.segment.max(1)) {
                let Some(source) = UdpAddr::of(&received.from) else {
                    continue;
                };
                let from = |port| UdpAddr::new(source.ip, port).rail();
                match read_head(datagram) {
                    Some((ECHO, port, number)) => {
                        counted = 0; // a measurement begins with echoes
                        answers.push((from(port), number));
                    }
                    Some((STREAM, port, number)) => {
                        counted += datagram.len() as u64;
                        if number != 0 {
                            answers.push((from(port), counted));
                        }
                    }
                    _ => {}
                }
            }
        });
        // The last answer covers a batch with several requests.
        if let Some((to, number)) = answers.last() {
            // A full queue may drop the answer, as the network may: the other end asks again.
            let _ = end.send(to, ANSWER, *number, SMALL, SMALL);
        }
        empty = if taken == 0 {
            empty.saturating_add(1)
        } else {
            0
        };
        if empty > 0 {
            idle(empty);
        }
    }
}

/// The measuring end.
struct Probe {
    end: End,
    to: RailAddr,
    losses: usize,
}

impl Probe {
    /// Waits for an answer that `wanted` accepts; `None` after [`ANSWER_MAX`].
    fn wait(&mut self, wanted: impl Fn(u64) -> bool) -> Option<u64> {
        let start = Instant::now();
        let (mut found, mut empty) = (None, 0u32);
        while found.is_none() && start.elapsed() < ANSWER_MAX {
            let taken = self.end.rx.recv(&mut |received| {
                for datagram in received.bytes.chunks(received.segment.max(1)) {
                    if let Some((ANSWER, _, number)) = read_head(datagram) {
                        found = Some(number).filter(|n| wanted(*n)).or(found);
                    }
                }
            });
            empty = if taken == 0 { empty + 1 } else { 0 };
            offer(empty);
        }
        found
    }

    fn lost(&mut self) -> Result<(), Failure> {
        self.losses += 1;
        if self.losses < LOSSES_MAX {
            return Ok(());
        }
        let to = show_addr(&self.to);
        let text = format!(
            "{to} does not answer, or too many packets are lost: is `marline tune --serve` running \
             there?"
        );
        Err(Failure::with(Code::NoAnswer, text))
    }

    /// Half a round trip of a small packet, in nanoseconds.
    fn latency(&mut self, rounds: usize) -> Result<f64, Failure> {
        let mut samples = Vec::new();
        let mut number = 0;
        while samples.len() < rounds.max(1) {
            number += 1;
            let start = Instant::now();
            self.end.send(&self.to, ECHO, number, SMALL, SMALL)?;
            match self.wait(|n| n == number) {
                Some(_) => samples.push(start.elapsed().as_nanos() as f64 / 2.0),
                None => self.lost()?,
            }
        }
        Ok(median(samples))
    }

    /// Nanoseconds per small packet sent in succession.
    fn gap(&mut self, rounds: usize) -> Result<f64, Failure> {
        let mut samples = Vec::new();
        while samples.len() < rounds.max(1) {
            let start = Instant::now();
            for n in 0..BURST {
                let ask = (n + 1 == BURST) as u64;
                self.end.send(&self.to, STREAM, ask, SMALL, SMALL)?;
            }
            samples.push(start.elapsed().as_nanos() as f64 / BURST as f64);
            if self.wait(|_| true).is_none() {
                self.lost()?;
            }
        }
        Ok(median(samples))
    }

    /// Streams super-packets under a window; returns bytes per nanosecond.
    fn rate(&mut self, time: Duration) -> Result<f64, Failure> {
        loop {
            match self.stream(time)? {
                Some(rate) => return Ok(rate),
                None => self.lost()?,
            }
        }
    }

    /// Sends a stream and measures it; `None` if a packet was lost.
    fn stream(&mut self, time: Duration) -> Result<Option<f64>, Failure> {
        // The remote end resets its count at an echo.
        self.end.send(&self.to, ECHO, u64::MAX, SMALL, SMALL)?;
        if self.wait(|n| n == u64::MAX).is_none() {
            return Ok(None);
        }
        let caps = self.end.tx.caps();
        let segment = caps.datagram_max;
        let len = (caps.batch_bytes_max / segment).clamp(1, caps.batch_segments_max) * segment;
        let (mut sent, mut counted) = (0u64, 0u64);
        let start = Instant::now();
        while start.elapsed() < time || counted < sent {
            if start.elapsed() < time && (sent == counted || sent + len as u64 <= counted + WINDOW)
            {
                self.end.send(&self.to, STREAM, 1, len, segment)?;
                sent += len as u64;
                continue;
            }
            match self.wait(|n| n > counted) {
                Some(n) => counted = n,
                None => return Ok(None),
            }
        }
        Ok(Some(counted as f64 / start.elapsed().as_nanos() as f64))
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// The socket address of a UDP rail.
fn end_of(addr: &RailAddr) -> Option<SocketAddr> {
    UdpAddr::of(addr).map(|udp| SocketAddr::new(udp.ip, udp.port))
}

fn choose(name: &str) -> Result<InterfaceChoice, Failure> {
    let bad = |why: String| Failure::with(Code::NoRail, format!("--rail {name}: {why}"));
    let choices = choose_interfaces(&[name.to_owned()]).map_err(bad)?;
    let first = choices.into_iter().next();
    first.ok_or_else(|| bad("no such interface".to_owned()))
}

/// Measures from `interface` to a `marline tune --serve` at `to`, or to a thread of this process.
pub fn measure(
    interface: &str,
    to: Option<SocketAddr>,
    effort: &Effort,
) -> Result<RailFigures, Failure> {
    let choice = choose(interface)?;
    let end = End::open(&choice, 0)?;
    let what = match to {
        Some(to) => format!("{choice} to {to}"),
        None => format!("{choice}, two rails of one process"),
    };
    let run = |to: RailAddr| {
        let mut probe = Probe { end, to, losses: 0 };
        let latency_ns = probe.latency(effort.rounds)?;
        let gap_ns = probe.gap(effort.rounds)?;
        let gb_per_s = probe.rate(effort.stream)?;
        Ok(RailFigures {
            what,
            latency_us: latency_ns / 1e3,
            gb_per_s,
            gap_ns,
        })
    };
    if let Some(to) = to {
        return run(UdpAddr::new(to.ip(), to.port()).rail());
    }
    let mut other = End::open(&choice, 0)?;
    let to = other.tx.local_addr();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| answer(&mut other, &stop, offer));
        let figures = run(to);
        stop.store(true, Ordering::Relaxed);
        figures
    })
}

/// Answers measurements of other hosts until killed.
pub fn serve(interface: &str, port: u16) -> Result<(), Failure> {
    let choice = choose(interface)?;
    let mut end = End::open(&choice, port)?;
    let local = end.tx.local_addr();
    let at = end_of(&local).ok_or("the rail has no address")?;
    if choice.loopback {
        let text = "no other host reaches loopback: give --rail NAME for another interface";
        crate::tool::say(&Code::NoRail.message(text));
    }
    println!(
        "answering at {at}; on another host, with its interface to this one: \
         marline tune --rail NAME --to {at}"
    );
    // Polls during a measurement and sleeps between two.
    answer(&mut end, &AtomicBool::new(false), |empty| match empty {
        0..QUIET => offer(empty),
        _ => std::thread::sleep(Duration::from_millis(1)),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_figures_of_the_right_order() {
        let effort = Effort {
            rounds: 20,
            stream: Duration::from_millis(20),
        };
        let figures = measure("lo", None, &effort).unwrap();
        // Only a sanity check: a loaded machine may be a thousand times slower than an idle one.
        assert!(
            figures.latency_us > 0.1 && figures.latency_us < 1e6,
            "{figures:?}"
        );
        assert!(figures.gap_ns > 10.0, "{figures:?}");
        assert!(
            figures.gb_per_s > 1e-4 && figures.gb_per_s < 1e3,
            "{figures:?}"
        );
        assert!(figures.what.contains("lo"), "{figures:?}");
    }

    #[test]
    fn a_silent_server_is_named() {
        // A bound socket without a reader sends neither refusals nor answers.
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = silent.local_addr().unwrap();
        let effort = Effort {
            rounds: 1,
            stream: Duration::from_millis(1),
        };
        let error = measure("lo", Some(to), &effort).unwrap_err();
        assert!(
            error.text().contains(&to.to_string()) && error.text().contains("--serve"),
            "{error:?}"
        );
        let error = measure("nosuch7", None, &effort).unwrap_err();
        let start = "--rail nosuch7: no interface or address here matches nosuch7; there is ";
        assert!(error.text().starts_with(start), "{error:?}");
    }

    #[test]
    fn strangers_datagrams_are_not_answers() {
        assert_eq!(read_head(&[0; 15]), None);
        assert_eq!(read_head(&[0; 64]), None);
        let mut packet = [0; SMALL];
        write_head(&mut packet, ECHO, 5000, 77);
        assert_eq!(read_head(&packet), Some((ECHO, 5000, 77)));
    }
}
