//! A service without interfaces, which needs no privilege: connections, bad messages, proofs.

use super::*;
use std::net::Ipv4Addr;
use std::net::UdpSocket;

/// A service at a path of its own, removed on drop.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn new(name: &str) -> Place {
        let name = format!("marline-xdpd-{}-{name}", std::process::id());
        let place = Place(std::env::temp_dir().join(name));
        let _ = std::fs::remove_dir_all(&place.0);
        place
    }

    fn socket(&self) -> PathBuf {
        self.0.join("folder/xdpd.sock")
    }

    fn open(&self) -> Result<XdpService, String> {
        let config = XdpServiceConfig {
            interfaces: vec![],
            groups: vec!["0".to_owned()],
            socket: self.socket(),
            sockets_max: 2,
            ports: (20_000, 20_009),
        };
        XdpService::open(&config, Box::new(|_| {}))
    }

    fn connect(&self, service: &mut XdpService) -> SeqPacket {
        let connection = SeqPacket::connect_to(&self.socket()).unwrap();
        service.accept();
        connection
    }
}

/// The reason of the refusal that waits on a connection, which has ended then.
fn refusal(connection: &SeqPacket) -> String {
    let mut bytes = [0; LEN_MAX];
    let message = connection.recv(&mut bytes).unwrap();
    let Ok(Answer::Refused(why)) = Answer::parse(&bytes[..message.len]) else {
        panic!("{bytes:?}");
    };
    assert_eq!(connection.recv(&mut bytes).unwrap().len, 0, "the end");
    why
}

#[test]
fn bad_messages_are_refused_and_end_the_connection() {
    let place = Place::new("bad");
    let mut service = place.open().unwrap();
    let socket = Request::Socket { interface: 1 }.bytes();
    for (bytes, part) in [
        (&b"\x09garbage"[..], "version 9"),
        (&[socket[0], 77], "unknown kind 77"),
        (&socket[..4], "too short"),
        (&[0; 2 * LEN_MAX], "version 0"),
        (&socket, "not the interface with index 1"),
    ] {
        let connection = place.connect(&mut service);
        let number = service.next - 1;
        connection.send(bytes, &[]).unwrap();
        service.read(number);
        let why = refusal(&connection);
        assert!(why.contains(part), "{why}");
        assert!(service.connections.is_empty());
    }
}

#[test]
fn a_user_has_a_limit_until_connections_end() {
    let place = Place::new("limit");
    let mut service = place.open().unwrap();
    let first = place.connect(&mut service);
    let _second = place.connect(&mut service);
    let third = place.connect(&mut service);
    assert_eq!(refusal(&third), "2 sockets are the limit");
    drop(first);
    service.read(1);
    assert_eq!(service.connections.len(), 1);
    let _fourth = place.connect(&mut service);
    assert_eq!(service.connections.len(), 2);
}

#[test]
fn a_path_has_one_service_and_the_next_one_follows_it() {
    let place = Place::new("path");
    let first = place.open().unwrap();
    let why = place.open().err().unwrap();
    assert!(why.contains("a service is there already"), "{why}");
    drop(first);
    assert!(place.socket().exists(), "as after a crash");
    place.open().unwrap();
}

#[test]
fn only_the_holder_of_a_port_gets_its_datagrams() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = udp.local_addr().unwrap().port();
    let network = network_of(udp.as_fd()).unwrap();
    let at = |ip: Ipv4Addr, port| prove(udp.as_fd(), network, (ip.into(), port));
    assert_eq!(at(Ipv4Addr::LOCALHOST, port), Ok(()));
    let why = at(Ipv4Addr::LOCALHOST, port ^ 1).unwrap_err();
    assert!(why.contains("no UDP socket at 127.0.0.1:"), "{why}");
    assert!(at(Ipv4Addr::new(127, 0, 0, 2), port).is_err());
    let elsewhere = prove(udp.as_fd(), network + 1, (Ipv4Addr::LOCALHOST.into(), port));
    assert!(elsewhere.unwrap_err().contains("another network namespace"));
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(prove(file.as_fd(), network, (Ipv4Addr::LOCALHOST.into(), port)).is_err());
}
