//! Connections between ends with different versions of the framing: both name both.

use super::*;
use crate::tcp::frame::{HEAD_LEN, VERSION};
use crate::RailVersions;
use marline_auth::{ConnectionKeys, JobKey, CHALLENGE_LEN, JOB_KEY_LEN};
use std::io::{ErrorKind, Read as _};
use std::net::TcpListener;

/// A version that no library speaks yet.
const OTHER: u8 = VERSION + 6;
/// Kinds that a first frame has: handshake, challenge, refusal.
const FIRST_KINDS: [u8; 3] = [1, 6, 7];

/// A first frame of the other version.
fn foreign_frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut word = [0; 8];
    word[..4].copy_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
    (word[6], word[7]) = (kind, 0xa0 | OTHER);
    let inverted = word.map(|byte| !byte);
    [&word[..], &inverted, body].concat()
}

fn rail_of_job(keyed: bool) -> Rail {
    let secret = ConnectionKeys::new(&JobKey::new([1; JOB_KEY_LEN]));
    let config = TcpConfig {
        keys: keyed.then(|| Arc::new(secret)),
        ..TcpConfig::default()
    };
    rail_with(IpAddr::V4(Ipv4Addr::LOCALHOST), &config)
}

/// Polls the rail until it has named both versions.
fn names_both(rail: &mut Rail) {
    let versions = RailVersions {
        theirs: OTHER,
        ours: VERSION,
    };
    let from = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let end = Instant::now() + Duration::from_secs(10);
    while !(rail.events).contains(&RailEvent::OtherVersion(from, versions)) {
        assert!(Instant::now() < end, "{:?}", rail.events);
        rail.poll();
    }
}

/// The bytes that the rail sends until it ends the connection.
fn read_all(rail: &mut Rail, wire: &mut TcpStream) -> Vec<u8> {
    let end = Instant::now() + Duration::from_secs(10);
    let (mut bytes, mut room) = (Vec::new(), [0; 256]);
    loop {
        assert!(Instant::now() < end, "the connection stays");
        rail.poll();
        match wire.read(&mut room) {
            Ok(0) => return bytes,
            Ok(got) => bytes.extend_from_slice(&room[..got]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return bytes,
        }
    }
}

#[test]
fn a_connection_of_another_version_is_refused_by_name() {
    for (keyed, kind) in [false, true]
        .map(|keyed| FIRST_KINDS.map(|kind| (keyed, kind)))
        .concat()
    {
        let mut rail = rail_of_job(keyed);
        let to = rail.shared.local();
        let mut wire = TcpStream::connect((to.ip, to.port)).expect("a connection");
        wire.set_nonblocking(true).expect("a socket");
        wire.write_all(&foreign_frame(kind, &[7; 22])).unwrap();
        names_both(&mut rail);
        let bytes = read_all(&mut rail, &mut wire);
        let start = if keyed { HEAD_LEN + CHALLENGE_LEN } else { 0 };
        let head = Head::claimed(&bytes[start..]).expect("a refusal");
        assert_eq!(
            (head.kind, bytes[start + 7] & 0xf),
            (Kind::Refusal, VERSION)
        );
    }
}

#[test]
fn a_link_to_an_end_of_another_version_ends_by_name() {
    for keyed in [false, true] {
        let mut rail = rail_of_job(keyed);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        let to = listener.local_addr().unwrap();
        let to = TcpAddr {
            ip: to.ip(),
            port: to.port(),
        };
        let link = rail.links.connect(to).link;
        let (mut wire, _) = listener.accept().expect("a connection");
        wire.write_all(&foreign_frame(7, &[0; 8])).unwrap();
        names_both(&mut rail);
        let end = Instant::now() + Duration::from_secs(10);
        while !rail.is_down(link) {
            assert!(Instant::now() < end, "{:?}", rail.events);
            rail.poll();
        }
        let why = DownReason::Broken(libc::EPROTONOSUPPORT);
        assert!(rail.events.contains(&RailEvent::LinkDown(link, why)));
    }
}
