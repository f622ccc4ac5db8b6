//! The program at an interface (XDP): it redirects UDP datagrams to this host's address, to a port
//! that a map lists for the queue of their arrival, and passes everything else to the kernel.
//!
//! It is assembled here, since a compiler for so few instructions would be one more thing to
//! install wherever Marline is built (docs/design/xdp.md). The kernel's verifier checks it at each
//! load.

use super::frames::{HEADERS_V4_LEN, HEADERS_V6_LEN};
use std::net::IpAddr;

/// `XDP_PASS`: the kernel goes on with the frame.
const PASS: i32 = 2;
/// `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// Marks the first half of a 64-bit immediate as the descriptor of a map.
const PSEUDO_MAP_FD: u8 = 1;

/// Offsets in `struct xdp_md`.
const MD_DATA: i16 = 0;
const MD_DATA_END: i16 = 4;
const MD_QUEUE: i16 = 16;

/// Offset in an Ethernet frame.
const ETHER_TYPE: i16 = 12;
/// Offsets in a frame of a UDP datagram over IPv4 without options.
const IPV4_VERSION: i16 = 14;
const IPV4_FRAGMENT: i16 = 20;
const IPV4_PROTOCOL: i16 = 23;
const IPV4_TO: i16 = 30;
/// Offsets in a frame of a UDP datagram over IPv6 without extension headers, such as a fragment's.
const IPV6_NEXT: i16 = 20;
const IPV6_TO: i16 = 38;
/// Offset of a datagram's port in its headers, from their end.
const UDP_TO_FROM_END: i16 = 6;

/// A fragment's offset, and the flag that more follow.
const FRAGMENT_BITS: [u8; 2] = [0x3f, 0xff];

/// An instruction in the kernel's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    opcode: u8,
    /// Destination in the low half, source in the high half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Register numbers.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;

/// Bits of a port in a key of the map; the queue's number is above.
const PORT_BITS: i32 = 16;

/// The key of a port's socket on a queue in the program's map.
pub(crate) fn map_key(queue: u32, port: u16) -> u32 {
    queue << PORT_BITS | u32::from(port)
}

/// Operations: class, size or operation, and source.
const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const LOAD_BYTE: u8 = 0x71;
const LOAD_WIDE: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const ADD_IMMEDIATE: u8 = 0x07;
const SHIFT_LEFT_IMMEDIATE: u8 = 0x67;
const OR: u8 = 0x4f;
const AND_IMMEDIATE: u8 = 0x57;
const FROM_BIG_ENDIAN: u8 = 0xdc;
const JUMP_ABOVE: u8 = 0x2d;
/// Compares the low 32 bits.
const JUMP_UNEQUAL: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

fn op(opcode: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction {
        opcode,
        registers: from << 4 | to,
        offset,
        immediate,
    }
}

/// Bytes of a frame as a register holds them after a load.
fn half(bytes: [u8; 2]) -> i32 {
    i32::from(u16::from_ne_bytes(bytes))
}

/// The program for datagrams to an address. `map` is the descriptor of a map of AF_XDP sockets by
/// [`map_key`].
pub(crate) fn assemble(to: IpAddr, map: i32) -> Vec<Instruction> {
    let headers_len = match to {
        IpAddr::V4(_) => HEADERS_V4_LEN,
        IpAddr::V6(_) => HEADERS_V6_LEN,
    };
    let mut code = vec![op(LOAD_WORD, R0, R1, MD_QUEUE, 0)];
    code.push(op(SHIFT_LEFT_IMMEDIATE, R0, 0, 0, PORT_BITS));
    code.push(op(LOAD_WORD, R2, R1, MD_DATA, 0));
    code.push(op(LOAD_WORD, R3, R1, MD_DATA_END, 0));
    code.push(op(MOVE, R4, R2, 0, 0));
    code.push(op(ADD_IMMEDIATE, R4, 0, 0, headers_len as i32));
    code.push(op(JUMP_ABOVE, R4, R3, 0, 0));
    match to {
        IpAddr::V4(to) => {
            check(&mut code, (LOAD_HALF, ETHER_TYPE), half([0x08, 0x00]));
            check(&mut code, (LOAD_BYTE, IPV4_VERSION), 0x45);
            check(&mut code, (LOAD_BYTE, IPV4_PROTOCOL), libc::IPPROTO_UDP);
            code.push(op(LOAD_HALF, R4, R2, IPV4_FRAGMENT, 0));
            code.push(op(AND_IMMEDIATE, R4, 0, 0, half(FRAGMENT_BITS)));
            code.push(op(JUMP_UNEQUAL, R4, 0, 0, 0));
            check_address(&mut code, IPV4_TO, &to.octets());
        }
        IpAddr::V6(to) => {
            check(&mut code, (LOAD_HALF, ETHER_TYPE), half([0x86, 0xdd]));
            check(&mut code, (LOAD_BYTE, IPV6_NEXT), libc::IPPROTO_UDP);
            check_address(&mut code, IPV6_TO, &to.octets());
        }
    }
    let udp_to = headers_len as i16 - UDP_TO_FROM_END;
    code.push(op(LOAD_HALF, R2, R2, udp_to, 0));
    code.push(op(FROM_BIG_ENDIAN, R2, 0, 0, 16));
    code.push(op(OR, R2, R0, 0, 0));
    code.push(op(LOAD_WIDE, R1, PSEUDO_MAP_FD, 0, map));
    code.push(op(0, 0, 0, 0, 0));
    // The result for a key that is not in the map.
    code.push(op(MOVE_IMMEDIATE, R3, 0, 0, PASS));
    code.push(op(CALL, 0, 0, 0, REDIRECT_MAP));
    code.push(op(EXIT, 0, 0, 0, 0));
    pass_after_checks(code)
}

/// Appends a check of bytes of the frame: a load, and a jump that [`pass_after_checks`] completes.
fn check(code: &mut Vec<Instruction>, (load, at): (u8, i16), equals: i32) {
    code.push(op(load, R4, R2, at, 0));
    code.push(op(JUMP_UNEQUAL, R4, 0, 0, equals));
}

/// Appends checks of an address's words.
fn check_address(code: &mut Vec<Instruction>, at: i16, octets: &[u8]) {
    let (words, _) = octets.as_chunks::<4>();
    for (word, at) in words.iter().zip((at..).step_by(4)) {
        check(code, (LOAD_WORD, at), i32::from_ne_bytes(*word));
    }
}

/// Appends the end of a frame that failed a check, and completes the jumps.
fn pass_after_checks(mut code: Vec<Instruction>) -> Vec<Instruction> {
    let pass = code.len();
    for (at, instruction) in code.iter_mut().enumerate() {
        if matches!(instruction.opcode, JUMP_UNEQUAL | JUMP_ABOVE) {
            instruction.offset = (pass - at - 1) as i16;
        }
    }
    code.push(op(MOVE_IMMEDIATE, R0, 0, 0, PASS));
    code.push(op(EXIT, 0, 0, 0, 0));
    code
}

#[cfg(test)]
#[path = "program_test.rs"]
mod tests;
