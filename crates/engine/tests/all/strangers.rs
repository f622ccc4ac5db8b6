//! A rail's counters for bad datagrams: damaged ones, those of another version, and foreign ones
//! are different hints for the search for a faulty card.

use marline_checksum::crc32c;
use marline_engine::settings::Settings;
use marline_engine::stats::reader::{list_pages, read_page};
use marline_engine::stats::RailCounters;
use marline_engine::{Completion, Engine, LogSink};
use marline_rails::UdpAddr;
use marline_wire::{Address, DirectHead, Header, DIRECT_HEAD_LEN, HEADER_LEN, VERSION};
use std::net::UdpSocket;
use std::sync::Arc;

/// A header for an endpoint, sealed with its CRC.
fn packet_for(to: &Address, version: u8) -> Vec<u8> {
    let header = Header {
        version,
        algorithm: 0,
        dst_id: to.id,
        dst_token: to.token,
        dst_slot: 0,
        src_id: 17,
        src_epoch: 1,
        path: 0,
        flags: 0,
        number: 0,
    };
    let mut bytes = vec![0; HEADER_LEN];
    header.write(HEADER_LEN as u16, &mut bytes);
    let crc = crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The counters of a new engine's rail after the datagrams that `make` returns.
fn counted(make: impl Fn(&Address) -> Vec<Vec<u8>>) -> RailCounters {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("x").replace(':', "_");
    let dir = std::env::temp_dir().join(format!("marline-strangers-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let lookup = |name: &str| match name {
        "rails" => Some("lo".to_owned()),
        "stats_dir" => Some(dir.to_str().unwrap().to_owned()),
        _ => None,
    };
    let settings = Settings::from_lookup(lookup).unwrap();
    let engine = Engine::open(settings, LogSink(Arc::new(|_, _| ()))).unwrap();
    let (cq, av) = (engine.cq_open(), engine.av_open());
    let ep = engine.ep_open().unwrap();
    engine.ep_bind_av(ep, av);
    engine.ep_bind_tx_cq(ep, cq);
    engine.ep_bind_rx_cq(ep, cq);
    engine.ep_enable(ep).unwrap();
    let (name, len) = engine.ep_name(ep).unwrap();
    let address = Address::decode(&name[..len]).unwrap();
    let datagrams = make(&address);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for datagram in &datagrams {
        let rail = address.rails().iter().next().unwrap();
        let to = ("127.0.0.1", UdpAddr::of(&rail).unwrap().port);
        stranger.send_to(datagram, to).unwrap();
    }
    // The page is updated ten times per second.
    let published = || {
        let page = read_page(&list_pages(&dir)[0]).unwrap();
        page.rails.first().map(|rail| rail.counters)
    };
    let counters = loop {
        let mut out = [Completion::empty(); 4];
        assert_eq!(engine.cq_read(cq, &mut out), Ok(0));
        match published() {
            Some(rail) if rail.wire_packets_received >= datagrams.len() as u64 => break rail,
            _ => {}
        }
    };
    engine.ep_close(ep);
    engine.close();
    std::fs::remove_dir_all(&dir).unwrap();
    counters
}

#[test]
fn a_damaged_version_is_damage_and_another_version_is_one() {
    let rail = counted(|to| {
        let mut damaged = packet_for(to, VERSION);
        damaged[4] ^= 0x55;
        let mut wrong_length = packet_for(to, VERSION);
        wrong_length[7] ^= 0x55;
        vec![damaged, wrong_length, packet_for(to, VERSION + 2)]
    });
    let found = (rail.corrupt_heads, rail.wrong_version, rail.truncated);
    assert_eq!(found, (2, 1, 0));
}

/// A direct write is a packet with its head, and user bytes of arbitrary content.
#[test]
fn a_direct_write_with_a_damaged_head_is_one_damaged_packet() {
    let rail = counted(|to| {
        let packet = packet_for(to, VERSION);
        let head = DirectHead {
            key: 1,
            offset: 0,
            len: 448,
            packet_len: packet.len() as u16,
            spare: 0,
        };
        let mut bytes = vec![7; head.total()];
        bytes[..DIRECT_HEAD_LEN].copy_from_slice(&head.write());
        bytes[DIRECT_HEAD_LEN..][..packet.len()].copy_from_slice(&packet);
        bytes[9] ^= 0x55;
        vec![bytes]
    });
    let found = (rail.corrupt_heads, rail.wrong_version);
    assert_eq!(found, (1, 0));
}

/// A port scan says nothing about cards, cables and switch ports.
#[test]
fn foreign_packets_are_neither_damaged_nor_of_another_version() {
    let rail = counted(|_| [1, 40, 48, 100, 1_400].map(|len| vec![0xa7; len]).to_vec());
    let found = (rail.corrupt_heads, rail.wrong_version, rail.truncated);
    assert_eq!(found, (0, 0, 2));
    assert_eq!(rail.unknown, 3);
}
