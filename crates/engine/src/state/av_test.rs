//! Tests of address vectors: reuse, stale and repeated indices, bytes of an entry.

use super::*;
use marline_wire::{RailAddr, RailKind};

/// Entries of the tests of memory: a large job.
const MANY: u64 = 100_000;
/// Most bytes of an entry with two rails over IPv4.
const ENTRY_MAX: usize = 64;

fn address(id: u64) -> Address {
    rails(id, 1)
}

/// An address with rails over IPv4.
fn rails(id: u64, count: u8) -> Address {
    let rail = |n| {
        let mut rail = RailAddr::new(RailKind::Udp4, &[10, n, id as u8, 1, 0, 80, 24]);
        (rail.index, rail.datagram_max) = (n, 1_472);
        rail
    };
    let rails: Vec<RailAddr> = (0..count).map(rail).collect();
    Address::new(id, id as u32, &rails)
}

/// Ids as random numbers are.
fn spread(n: u64) -> u64 {
    (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn slots_are_reused_and_stale_indices_of_a_map_name_no_address() {
    for map in [false, true] {
        let mut av = Av::new(map);
        let first = [1, 3, 5].map(|id| av.insert(&address(id)));
        assert_eq!(first, [0, 1, 2]);
        for round in 0..1_000 {
            let old = av.find(3);
            assert!(av.remove(old).is_some() && av.remove(old).is_none());
            assert!(av.get(old).is_none() && av.find(3) == ADDR_UNSPEC);
            let new = av.insert(&address(3));
            assert_eq!(Av::slot_of(new), 1);
            assert_eq!(av.get(old).is_none(), map, "round {round}");
            assert_eq!(av.get(new).map(|a| a.id), Some(3));
        }
        assert_eq!(av.slots.len(), 3);
    }
}

#[test]
fn the_second_of_two_indices_is_found_after_removal_of_the_first() {
    let mut av = Av::new(false);
    let (one, two) = (av.insert(&address(7)), av.insert(&address(7)));
    assert_eq!(av.find(7), one);
    av.remove(one);
    assert_eq!(av.find(7), two);
    av.remove(two);
    assert_eq!(av.find(7), ADDR_UNSPEC);
}

/// In a map a reused slot has a higher index than a slot of its first life.
#[test]
fn the_lowest_of_many_indices_of_an_id_is_found_in_any_order_of_removal() {
    let mut av = Av::new(true);
    let mut named: Vec<FiAddr> = (0..50).map(|_| av.insert(&address(7))).collect();
    for n in 0..200 {
        let gone = named.remove(n * 7 % named.len());
        assert_eq!(av.remove(gone).map(|a| a.id), Some(7));
        let least = named.iter().min().copied();
        assert_eq!(av.find(7), least.unwrap_or(ADDR_UNSPEC));
        if n % 3 > 0 {
            named.push(av.insert(&address(7)));
        }
        if named.is_empty() {
            break;
        }
    }
}

#[test]
fn addresses_come_back_as_they_were_inserted() {
    let mut av = Av::new(false);
    let all: Vec<Address> = (0..300).map(|n| rails(spread(n), n as u8 % 5)).collect();
    let named: Vec<FiAddr> = all.iter().map(|a| av.insert(a)).collect();
    for (address, name) in all.iter().zip(&named) {
        assert_eq!(av.get(*name).as_ref(), Some(address));
        assert_eq!(av.find(address.id), *name);
    }
    for name in named.iter().step_by(2) {
        av.remove(*name);
    }
    for (n, (address, name)) in all.iter().zip(&named).enumerate() {
        let there = (n % 2 == 1).then_some(address);
        assert_eq!(av.get(*name).as_ref(), there);
    }
}

#[test]
fn an_entry_that_is_not_spoken_to_is_small() {
    for (count, most) in [(1, ENTRY_MAX - 8), (2, ENTRY_MAX)] {
        let mut av = Av::new(false);
        (0..MANY).for_each(|n| {
            av.insert(&rails(spread(n), count));
        });
        let each = av.heap_bytes() / MANY as usize;
        println!("{count} rails: {each} bytes an entry");
        assert!(each <= most, "{count} rails: {each} bytes");
    }
}

/// A job whose ranks come and go does not grow the vector.
#[test]
fn memory_of_removed_addresses_is_reused() {
    let mut av = Av::new(true);
    let fill = |av: &mut Av, from: u64| -> Vec<FiAddr> {
        let numbers = from..from + 1_000;
        numbers
            .map(|n| av.insert(&rails(spread(n), n as u8 % 4 + 1)))
            .collect()
    };
    let mut named = fill(&mut av, 0);
    let mut bytes = 0;
    for round in 1..20 {
        named.drain(..).for_each(|name| {
            av.remove(name);
        });
        named = fill(&mut av, round * 1_000);
        if round == 1 {
            bytes = av.heap_bytes();
        }
    }
    assert!(
        av.heap_bytes() <= bytes + bytes / 8,
        "{} from {bytes}",
        av.heap_bytes()
    );
}
