//! A stranger's toolbox: speaks Marline's protocol from outside of a job, to show that the job does
//! not obey. For the tests alone.
//!
//! `stranger ATTACK [to=ADDRESS:PORT] [from=ADDRESS] [peer=ADDRESS:PORT] [recording=FILE]
//! [into=FILE] [key=none|KEY] [count=N] [ahead=N] [bytes=N] [without=NAME,...]`

mod attacks;
mod connections;
mod flood;
mod forge;
mod groups;
mod names;

use attacks::Attack;
use flood::Flood;
use forge::{draw, Names, Rails, Tag, ADDRESSES};
use names::Recorded;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Packets of a burst, and the pause after it: the victim's kernel has room for them.
const BURST: u32 = 16;
const PAUSE: Duration = Duration::from_micros(500);
/// Bursts without a pause at most, after one that was too long: the kernel has room for these too.
const BURSTS_AT_ONCE: u32 = 8;
/// Time in which the victim's packets to other addresses are counted.
const COUNT_TIME: Duration = Duration::from_millis(1_500);

/// The command line.
struct Request {
    what: String,
    to: Option<SocketAddr>,
    from: Option<IpAddr>,
    recording: Vec<Recorded>,
    tag: Tag,
    count: u32,
    /// Numbers of packets that an attack leaves out after the peer's last one.
    ahead: u64,
    /// Bytes at the beginning of a connection.
    bytes: usize,
    /// Another rank of the job.
    peer: Option<SocketAddr>,
    /// The file for a new recording.
    into: Option<String>,
    /// Kinds of packets that a flood leaves out.
    without: Vec<String>,
}

impl Request {
    fn read(words: &[String]) -> Result<Request, String> {
        let (what, options) = words.split_first().ok_or("which attack?")?;
        let mut request = Request {
            what: what.clone(),
            to: None,
            from: None,
            recording: Vec::new(),
            tag: Tag::None,
            count: 1,
            ahead: 0,
            bytes: 0,
            peer: None,
            into: None,
            without: Vec::new(),
        };
        for option in options {
            request
                .set(option)
                .map_err(|why| format!("{option}: {why}"))?;
        }
        Ok(request)
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        let wrong = |_| "this is no value".to_owned();
        let (name, value) = option.split_once('=').ok_or("NAME=VALUE")?;
        match name {
            "to" => self.to = Some(value.parse().map_err(|_| "no address")?),
            "from" => self.from = Some(value.parse().map_err(|_| "no address")?),
            "recording" => self.recording = names::read_recording(value)?,
            "key" => self.tag = Tag::named(value).ok_or("`none` or 64 digits")?,
            "peer" => self.peer = Some(value.parse().map_err(|_| "no address")?),
            "into" => self.into = Some(value.to_owned()),
            "without" => self.without = value.split(',').map(str::to_owned).collect(),
            "ahead" => self.ahead = value.parse().map_err(wrong)?,
            "bytes" => self.bytes = value.parse().map_err(wrong)?,
            "count" => self.count = value.parse().map_err(wrong)?,
            _ => return Err("there is no such option".to_owned()),
        }
        Ok(())
    }

    /// The victim's place: the one given, or the last one in the recording.
    fn to(&self) -> Result<SocketAddr, String> {
        let recorded = names::last_packet(&self.recording).map(|(to, _)| to);
        self.to
            .or(recorded)
            .ok_or_else(|| "to=ADDRESS:PORT".to_owned())
    }

    fn socket(&self) -> Result<UdpSocket, String> {
        let from = self.from.ok_or("from=ADDRESS")?;
        UdpSocket::bind((from, 0)).map_err(|why| why.to_string())
    }
}

/// Sends packets in bursts; returns how many left.
fn send(socket: &UdpSocket, to: SocketAddr, packets: impl Iterator<Item = Vec<u8>>) -> u32 {
    let (mut sent, mut due) = (0, Instant::now());
    for (n, bytes) in (1..).zip(packets) {
        // (An error is the ICMP answer to an earlier packet.)
        sent += u32::from(socket.send_to(&bytes, to).is_ok());
        if n % BURST == 0 {
            due = pause(due);
        }
    }
    sent
}

/// Sleeps until a pause after a burst that was due at this time; returns when the next one is due.
fn pause(due: Instant) -> Instant {
    let now = Instant::now();
    let due = (due + PAUSE).max(now - PAUSE * BURSTS_AT_ONCE);
    std::thread::sleep(due.saturating_duration_since(now));
    due
}

/// The names of the victim, from the recording, or by asking.
fn victim(request: &Request, socket: &UdpSocket) -> Result<(u64, u32), String> {
    if let Some((_, header)) = names::last_packet(&request.recording) {
        return Ok((header.dst_id, header.dst_token));
    }
    let from = socket.local_addr().map_err(|why| why.to_string())?;
    let address = names::ask(socket, request.to()?, from).map_err(|why| why.to_string())?;
    let address = address.ok_or("no answer to the question")?;
    Ok((address.id, address.token))
}

fn attack(request: &Request, attack: Attack) -> Result<(), String> {
    let socket = request.socket()?;
    let place = socket.local_addr().map_err(|why| why.to_string())?;
    let (names, first) = if attack.is_in_a_peers_name() {
        let last = names::last_packet(&request.recording);
        let (_, header) = last.ok_or("recording=FILE")?;
        (Names::of(&header), header.number + 1 + request.ahead)
    } else {
        (Names::stranger(draw(), victim(request, &socket)?), 0)
    };
    // Direct writes guess the keys after one that was seen, or a process's first ones.
    let first = match attack {
        Attack::Direct => names::last_key(&request.recording).unwrap_or(0) + 1,
        _ => first,
    };
    let rails = Rails::at(&[place]);
    let make = |n| attack.packet(n, first, (&names, &request.tag), &rails);
    println!(
        "sent {}",
        send(&socket, request.to()?, (0..request.count).map(make))
    );
    Ok(())
}

/// Ends a job in three packets, where tokens and epochs are all that a peer must know: asks both
/// ranks for their names, greets the peer, which tells its epoch, and sends BYE in its name.
fn three(request: &Request) -> Result<(), String> {
    let socket = request.socket()?;
    let place = socket.local_addr().map_err(|why| why.to_string())?;
    let (to, peer) = (request.to()?, request.peer.ok_or("peer=ADDRESS:PORT")?);
    let [victim, name] = [to, peer].map(|at| names::ask(&socket, at, place));
    let asked = victim.and_then(|victim| Ok((victim, name?)));
    let (Some(victim), Some(name)) = asked.map_err(|why| why.to_string())? else {
        println!("sent 2 answers 0");
        return Ok(());
    };
    let stranger = Names::stranger(draw(), (name.id, name.token));
    let hello = Attack::Hello.packet(0, 0, (&stranger, &request.tag), &Rails::at(&[place]));
    send(&socket, peer, std::iter::once(hello));
    let epoch = names::epoch_told(&socket, name.id).ok_or("no packet of the peer")?;
    let forged = Names {
        source: (name.id, epoch),
        ..Names::stranger(0, (victim.id, victim.token))
    };
    let byes = (0..request.count).map(|n| {
        let first = request.ahead;
        Attack::Bye.packet(n, first, (&forged, &request.tag), &Rails::at(&[place]))
    });
    println!("sent {} answers 2", send(&socket, to, byes));
    Ok(())
}

/// Sends recorded datagrams again, unchanged.
fn replay(request: &Request) -> Result<(), String> {
    let socket = request.socket()?;
    let all = request
        .recording
        .iter()
        .cycle()
        .take(request.count as usize);
    let mut sent = 0;
    for record in all {
        sent += send(&socket, record.to, std::iter::once(record.bytes.clone()));
        if sent % BURST == 0 {
            std::thread::sleep(PAUSE);
        }
    }
    println!("sent {sent}");
    Ok(())
}

/// Sends packets of all kinds in turn to the victim of a recording.
fn flood(request: Request) -> Result<(), String> {
    let (socket, to) = (request.socket()?, request.to()?);
    let place = socket.local_addr().map_err(|why| why.to_string())?;
    let flood = Flood::new(&request.recording, place, request.tag, &request.without);
    let flood = flood.ok_or("recording=FILE")?;
    let packets = (0..request.count).map(|n| flood.packet(n));
    println!("sent {}", send(&socket, to, packets));
    Ok(())
}

/// Asks for the address of the endpoint at a port.
fn ask(request: &Request) -> Result<(), String> {
    let socket = request.socket()?;
    let from = socket.local_addr().map_err(|why| why.to_string())?;
    let mut answers = 0;
    for _ in 0..request.count {
        let answer = names::ask(&socket, request.to()?, from);
        answers += u32::from(answer.map_err(|why| why.to_string())?.is_some());
    }
    println!("sent {} answers {answers}", request.count);
    Ok(())
}

/// Names many addresses in a HELLO, and counts the bytes that go there.
fn amplify(request: &Request) -> Result<(), String> {
    let socket = request.socket()?;
    let sinks: Result<Vec<UdpSocket>, String> = (0..ADDRESSES).map(|_| request.socket()).collect();
    let sinks = sinks?;
    let places: std::io::Result<Vec<SocketAddr>> =
        sinks.iter().map(UdpSocket::local_addr).collect();
    let rails = Rails::at(&places.map_err(|why| why.to_string())?);
    let names = Names::stranger(draw(), victim(request, &socket)?);
    let bytes = Attack::Hello.packet(0, 0, (&names, &request.tag), &rails);
    let (len, sent) = (
        bytes.len(),
        send(&socket, request.to()?, std::iter::once(bytes)),
    );
    let (mut received, begin) = (0, Instant::now());
    let mut room = vec![0; 65_536];
    for sink in &sinks {
        sink.set_nonblocking(true).map_err(|why| why.to_string())?;
    }
    while begin.elapsed() < COUNT_TIME {
        std::thread::sleep(PAUSE);
        let mut all = sinks.iter().filter_map(|sink| sink.recv(&mut room).ok());
        received += all.by_ref().sum::<usize>();
    }
    println!("sent {sent} bytes {len} received {received}");
    Ok(())
}

/// Joins the multicast address of a group and records what comes.
fn group_join(request: &Request) -> Result<(), String> {
    let at = request.to.ok_or("to=ADDRESS:PORT")?;
    let into = request.into.as_deref().ok_or("into=FILE")?;
    let Some(IpAddr::V4(from)) = request.from else {
        return Err("from=IPV4_ADDRESS".to_owned());
    };
    let received = groups::join(at, from, request.count, into)?;
    println!("received {received}");
    Ok(())
}

/// Multicasts to a group in the name of a recorded member.
fn group_forge(request: &Request) -> Result<(), String> {
    let socket = request.socket()?;
    let mut sent = 0;
    for n in 0..request.count {
        let forged = groups::forged(&request.recording, n);
        let (to, bytes) = forged.ok_or("recording=FILE with a chunk of a group")?;
        sent += send(&socket, to, std::iter::once(bytes));
        std::thread::sleep(PAUSE);
    }
    println!("sent {sent}");
    Ok(())
}

fn act(request: Request) -> Result<(), String> {
    let given = &request;
    match request.what.as_str() {
        "flood" => flood(request),
        "ask" => ask(given),
        "replay" => replay(given),
        "amplify" => amplify(given),
        "three" => three(given),
        "group-join" => group_join(given),
        "group-forge" => group_forge(given),
        "tcp" => {
            connections::hold(request.to()?, request.count, &vec![0x5a; request.bytes]);
            Ok(())
        }
        name => match Attack::named(name) {
            Some(kind) => attack(given, kind),
            None => Err(format!("there is no attack {name}")),
        },
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match Request::read(&words).and_then(act) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("stranger: {why}");
            ExitCode::FAILURE
        }
    }
}
