//! Asks which endpoint listens at a port of a host before a rail to it exists, from a separate
//! socket.

use crate::addr::UdpAddr;
use marline_wire::{Answer, Question, PLACE_LEN};
use std::io::ErrorKind;
use std::iter::successors;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Largest datagram that the asking socket claims to take.
const DATAGRAM: u16 = 1_472;
/// First pause before a question is repeated; it doubles.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Time for which all places are asked again although each host reports its port as unused: a
/// process may be about to open the port.
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// Why no endpoint is known to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// No route leads to any of the places.
    NoWay,
    /// The host reports that the port is unused (ICMP port unreachable).
    Refused,
    /// No answer arrived.
    Silent,
}

/// A place that is asked.
struct Asked {
    socket: UdpSocket,
    question: [u8; PLACE_LEN],
    refused: bool,
}

impl Asked {
    fn open(to: SocketAddr, number: u64, crc32c: Sum, tag: Tag<'_>) -> std::io::Result<Asked> {
        let any: SocketAddr = match to {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        // `connect` makes the kernel choose the local address and report ICMP errors.
        socket.connect(to)?;
        let own = socket.local_addr()?;
        let mut from = UdpAddr::new(own.ip(), own.port()).rail();
        from.datagram_max = DATAGRAM;
        let mut question = Question { number, from }.encode(crc32c);
        if let Some(tag) = tag {
            Question::add_tag(&mut question, tag, crc32c);
        }
        Ok(Asked {
            socket,
            question,
            refused: false,
        })
    }

    fn ask(&mut self) {
        // A failed send is repeated.
        self.note(self.socket.send(&self.question).map(|_| ()));
    }

    fn note(&mut self, done: std::io::Result<()>) {
        if let Err(e) = done {
            self.refused |= e.kind() == ErrorKind::ConnectionRefused;
        }
    }

    /// The matching answer, if it arrives within `time`.
    fn wait(&mut self, time: Duration, number: u64, crc32c: Sum) -> Option<[u8; 64]> {
        let end = Instant::now() + time;
        let mut bytes = [0; PLACE_LEN + 1];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.socket.set_read_timeout(Some(left)).ok()?;
            match self.socket.recv(&mut bytes) {
                Ok(len) => {
                    if let Some(blob) = answer_to(number, &bytes[..len], crc32c) {
                        return Some(blob);
                    }
                }
                Err(e) => self.note(Err(e)),
            }
        }
    }
}

/// The pauses after each question before it is repeated.
pub fn pauses() -> impl Iterator<Item = Duration> {
    successors(Some(PAUSE), |pause| Some((2 * *pause).min(PAUSE_MAX)))
}

/// The address in a datagram that answers the question of this number.
pub fn answer_to(number: u64, bytes: &[u8], crc32c: Sum) -> Option<[u8; 64]> {
    let answer = Answer::parse(bytes, crc32c)?;
    (answer.number == number).then_some(answer.blob)
}

/// The sum of questions and answers: CRC-32C.
pub type Sum = fn(&[u8]) -> u32;

/// Computes the tags of questions, for a job with a key.
pub type Tag<'a> = Option<&'a dyn Fn(&[u8]) -> u64>;

/// Asks which endpoint listens at these places, and repeats the question until `time` is over.
/// Returns the address of the first endpoint that answers, as an unchecked blob. `number` is random
/// and secret, so that third parties cannot forge an answer.
pub fn ask(
    places: &[SocketAddr],
    number: u64,
    time: Duration,
    crc32c: Sum,
    tag: Tag<'_>,
) -> Result<[u8; 64], Unanswered> {
    let (start, mut pauses) = (Instant::now(), pauses());
    let opened = places
        .iter()
        .map(|to| Asked::open(*to, number, crc32c, tag));
    let mut asked: Vec<Asked> = opened.filter_map(Result::ok).collect();
    if asked.is_empty() {
        return Err(Unanswered::NoWay);
    }
    loop {
        let pause = pauses.next().unwrap_or(PAUSE_MAX);
        asked.iter_mut().for_each(Asked::ask);
        let share = pause / asked.len() as u32;
        for one in &mut asked {
            if let Some(blob) = one.wait(share, number, crc32c) {
                return Ok(blob);
            }
        }
        let (past, refused) = (start.elapsed(), asked.iter().all(|one| one.refused));
        if refused && past >= REFUSED_FOR.min(time) {
            return Err(Unanswered::Refused);
        }
        if past >= time {
            return Err(Unanswered::Silent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_wire::{RailKind, RailList};

    fn sum(bytes: &[u8]) -> u32 {
        let add = |sum: u32, b: &u8| sum.wrapping_mul(31).wrapping_add(*b as u32);
        bytes.iter().fold(1, add)
    }

    const SHORT: Duration = Duration::from_millis(40);

    /// Answers the first question with these datagrams, built from its number.
    fn answering(
        socket: UdpSocket,
        answers: impl Fn(u64) -> Vec<Vec<u8>> + Send + 'static,
    ) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || {
            let mut bytes = [0; PLACE_LEN];
            let (len, to) = socket.recv_from(&mut bytes).unwrap();
            let question = Question::parse(&bytes[..len], sum).unwrap();
            let mut list = [0; 32];
            let from = RailList::write(&mut list, &[question.from]);
            assert_eq!(from.iter().next().unwrap().kind, RailKind::Udp4);
            let place = UdpAddr::place(&question.from).unwrap();
            assert_eq!(place, to, "it says where it is");
            for answer in answers(question.number) {
                socket.send_to(&answer, place).unwrap();
            }
        })
    }

    fn answer(number: u64, fill: u8) -> Vec<u8> {
        let blob = [fill; 64];
        Answer { number, blob }.encode(sum).to_vec()
    }

    #[test]
    fn the_answer_to_the_question_counts_and_nothing_else() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (at, silent) = (socket.local_addr().unwrap(), UdpSocket::bind("127.0.0.1:0"));
        let silent = silent.unwrap();
        let answers = |number| {
            let mut damaged = answer(number, 2);
            damaged[50] ^= 1;
            let long = [answer(number, 3), vec![0]].concat();
            vec![
                vec![],
                answer(number + 1, 1),
                damaged,
                long,
                answer(number, 4),
            ]
        };
        let server = answering(socket, answers);
        let places = [silent.local_addr().unwrap(), at];
        let long = Duration::from_secs(20);
        assert_eq!(ask(&places, 77, long, sum, None), Ok([4; 64]));
        server.join().unwrap();
    }

    #[test]
    fn a_refusal_differs_from_silence() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        assert_eq!(ask(&[at], 1, SHORT, sum, None), Err(Unanswered::Silent));
        drop(socket);
        assert_eq!(ask(&[at], 1, SHORT, sum, None), Err(Unanswered::Refused));
        assert_eq!(ask(&[], 1, SHORT, sum, None), Err(Unanswered::NoWay));
    }
}
