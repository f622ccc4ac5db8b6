//! Rails that move to another address.

use super::*;
use crate::sys::Epoll;

#[test]
fn a_rail_moves_to_another_address_and_back() {
    let (mut a, mut b) = (rail(), rail());
    let (mut link, mut back) = linked_both_ways(&mut a, &mut b);
    let first = b.shared.local();
    let elsewhere = [IpAddr::from(Ipv6Addr::LOCALHOST), [192, 0, 2, 1].into()];
    assert!(elsewhere.map(|ip| b.shared.listen_at(ip, 0).is_err()) == [true; 2]);
    for last in [2, 3, 2] {
        let local = b.shared.listen_at([127, 0, 0, last].into(), 0).unwrap();
        b.links.part_from_all();
        assert_eq!(
            (local.ip, local.port),
            ([127, 0, 0, last].into(), first.port)
        );
        until(&mut a, &mut b, "the links' end", |a, b| {
            a.is_down(link) && b.is_down(back) && a.rx.open() == 0 && b.rx.open() == 0
        });
        a.links.close(link);
        b.links.close(back);
        (a.events, b.events) = (Vec::new(), Vec::new());
        // The rail that moved connects, and the other identifies it by its new address.
        let from_there = linked(&mut b, &mut a);
        assert_eq!(b.links.send(from_there, &[last], 1), Sent::Taken);
        until(&mut a, &mut b, "a packet", |a, _| a.got == [[last]]);
        let (known, up) = a.connect(&b);
        assert!(up, "the connection that is there serves");
        a.links.close(known);
        b.links.close(from_there);
        until(&mut a, &mut b, "the close", |a, b| {
            a.rx.open() + b.rx.open() == 0
        });
        (link, back) = linked_both_ways(&mut a, &mut b); // the rail listens there
        a.got.clear();
    }
    let there = b.shared.local();
    assert_eq!((there.ip, there.port), ([127, 0, 0, 2].into(), first.port));
}

#[test]
fn a_rail_that_cannot_listen_elsewhere_stays() {
    let mut shared = Shared::open(Ipv4Addr::LOCALHOST.into(), 0, &TcpConfig::default()).unwrap();
    let null = std::fs::File::open("/dev/null").expect("a file");
    shared.epoll = Epoll::of(null.into());
    let was = shared.local();
    assert_eq!(
        shared.listen_at([127, 0, 0, 2].into(), 0),
        Err(libc::EINVAL)
    );
    assert_eq!(shared.local(), was);
    TcpStream::connect((was.ip, was.port)).expect("it still listens there");
}
