//! The program, run by an interpreter of the instructions that it uses.

use super::*;
use crate::xdp::frames::Route;

use std::net::{Ipv4Addr, Ipv6Addr};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2));
const HERE_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
const PORT: u16 = 4_242;
const MAP: i32 = 77;

/// The fate of a frame: passed to the kernel, or given to the socket of a key.
#[derive(Debug, PartialEq)]
enum Verdict {
    Pass,
    Socket(u64),
}

/// Where `data` of the frame lies in the interpreter's address space.
const DATA: u64 = 0x1000;

fn load(frame: &[u8], at: u64, len: u64) -> u64 {
    let from = (at - DATA) as usize;
    let mut bytes = [0; 8];
    bytes[..len as usize].copy_from_slice(&frame[from..from + len as usize]);
    u64::from_le_bytes(bytes)
}

/// Runs the program of an address on a frame that arrived on a queue.
fn run_for(here: IpAddr, frame: &[u8], queue: u32) -> Verdict {
    let code = assemble(here, MAP);
    let mut r = [0u64; 11];
    let mut at = 0;
    loop {
        let i = code[at];
        let (to, from) = ((i.registers & 15) as usize, (i.registers >> 4) as usize);
        let address = r[from].wrapping_add(i.offset as u64);
        at += 1;
        match i.opcode {
            LOAD_WORD if from == 1 => {
                r[to] = match i.offset {
                    MD_DATA => DATA,
                    MD_DATA_END => DATA + frame.len() as u64,
                    _ => queue.into(),
                }
            }
            LOAD_WORD => r[to] = load(frame, address, 4),
            LOAD_HALF => r[to] = load(frame, address, 2),
            LOAD_BYTE => r[to] = load(frame, address, 1),
            LOAD_WIDE => {
                assert_eq!((from, i.immediate), (PSEUDO_MAP_FD as usize, MAP));
                r[to] = MAP as u64;
                at += 1;
            }
            MOVE => r[to] = r[from],
            MOVE_IMMEDIATE => r[to] = i.immediate as u64,
            ADD_IMMEDIATE => r[to] = r[to].wrapping_add(i.immediate as u64),
            SHIFT_LEFT_IMMEDIATE => r[to] <<= i.immediate,
            OR => r[to] |= r[from],
            AND_IMMEDIATE => r[to] &= i.immediate as u64,
            FROM_BIG_ENDIAN => r[to] = (r[to] as u16).swap_bytes().into(),
            JUMP_ABOVE if r[to] > r[from] => at += i.offset as usize,
            JUMP_UNEQUAL if r[to] as u32 != i.immediate as u32 => at += i.offset as usize,
            JUMP_ABOVE | JUMP_UNEQUAL => {}
            CALL => {
                assert_eq!((i.immediate, r[1], r[3]), (REDIRECT_MAP, MAP as u64, 2));
                return Verdict::Socket(r[2]);
            }
            EXIT => {
                assert_eq!(r[0], PASS as u64);
                return Verdict::Pass;
            }
            other => panic!("{other:#x}"),
        }
    }
}

fn run(frame: &[u8], queue: u32) -> Verdict {
    run_for(HERE, frame, queue)
}

/// A frame to an address from another of its family.
fn frame_to(to: IpAddr) -> Vec<u8> {
    let from = match to {
        IpAddr::V4(_) => Ipv4Addr::new(10, 1, 0, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let route = Route::new(([1; 6], from, 9_999), ([2; 6], to, PORT), 0).unwrap();
    let mut frame = vec![0; 100];
    let len = route.write(b"payload", &mut frame).unwrap();
    frame.truncate(len);
    frame
}

fn frame() -> Vec<u8> {
    frame_to(HERE)
}

#[test]
#[cfg(target_endian = "little")]
fn only_udp_to_this_address_is_redirected_by_queue_and_port() {
    assert_eq!(run(&frame(), 0), Verdict::Socket(PORT.into()));
    let other = Verdict::Socket(map_key(3, PORT).into());
    assert_eq!(run(&frame(), 3), other, "another queue");
    assert_eq!(other, Verdict::Socket(3 * 65_536 + u64::from(PORT)));
    for (at, value, what) in [
        (12, 0x86, "another protocol than IPv4"),
        (14, 0x46, "IP options"),
        (20, 0x20, "the first fragment"),
        (21, 0x01, "a later fragment"),
        (23, 6, "TCP"),
        (33, 3, "another address"),
    ] {
        let mut other = frame();
        assert_ne!(other[at], value);
        other[at] = value;
        assert_eq!(run(&other, 0), Verdict::Pass, "{what}");
    }
    let mut whole = frame();
    whole[20] = 0x40;
    assert_eq!(
        run(&whole, 0),
        Verdict::Socket(PORT.into()),
        "don't fragment"
    );
}

#[test]
#[cfg(target_endian = "little")]
fn only_udp_over_ipv6_to_this_address_is_redirected() {
    let run = |frame: &[u8]| run_for(HERE_V6, frame, 0);
    let good = frame_to(HERE_V6);
    assert_eq!(run(&good), Verdict::Socket(PORT.into()));
    for (at, value, what) in [
        (13, 0xd0, "another protocol than IPv6"),
        (20, 44, "a fragment"),
        (20, 6, "TCP"),
        (38, 0xfe, "another address"),
        (53, 3, "another address"),
    ] {
        let mut other = good.clone();
        other[at] = value;
        assert_eq!(run(&other), Verdict::Pass, "{what}");
    }
    assert_eq!(run(&frame()), Verdict::Pass, "IPv4");
    assert_eq!(run_for(HERE, &good, 0), Verdict::Pass);
}

#[test]
#[cfg(target_endian = "little")]
fn a_short_frame_passes() {
    for (here, headers_len) in [(HERE, HEADERS_V4_LEN), (HERE_V6, HEADERS_V6_LEN)] {
        let frame = frame_to(here);
        for len in 0..headers_len {
            assert_eq!(run_for(here, &frame[..len], 0), Verdict::Pass);
        }
        let bare = &frame[..headers_len];
        assert_eq!(run_for(here, bare, 0), Verdict::Socket(PORT.into()));
    }
}
