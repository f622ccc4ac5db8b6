//! The program that an interface has already: a question to the kernel's table of interfaces
//! (rtnetlink), and its answer.

use super::neighbours::{attribute, message, parts};
use crate::sys::interface_index;
use crate::sys::xdp::{program_name, RouteSocket};

/// Length of `ifinfomsg`, and the offset of the interface's index in it.
const BODY_LEN: usize = 16;
const INDEX: usize = 4;
/// Attributes of an interface and of its program (`IFLA_XDP_PROG_ID`).
const XDP: u16 = 43;
const PROGRAM_NUMBER: u16 = 4;
/// Marks an attribute that consists of attributes.
const NESTED: u16 = 1 << 15;

/// The program at an interface, for people: its number, and its name if this process may know it.
pub(super) fn occupant(interface: &str) -> Option<String> {
    let index = interface_index(interface).ok()?;
    let routes = RouteSocket::open().ok()?;
    let number = routes.ask(&question(index), read)?;
    Some(match program_name(number) {
        Some(name) => format!("{name}, number {number}"),
        None => format!("number {number}"),
    })
}

fn question(index: u32) -> Vec<u8> {
    let mut body = [0; BODY_LEN];
    body[INDEX..INDEX + 4].copy_from_slice(&index.to_ne_bytes());
    message(libc::RTM_GETLINK, &body, &[])
}

/// The program's number in an answer.
fn read(answer: &[u8]) -> Option<u32> {
    let (_, attributes) = parts::<BODY_LEN>(answer, libc::RTM_NEWLINK)?;
    let program = attribute(attributes, XDP).or_else(|| attribute(attributes, XDP | NESTED))?;
    let number = attribute(program, PROGRAM_NUMBER)?;
    let number = u32::from_ne_bytes(number.try_into().ok()?);
    (number != 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with the attributes of a program.
    fn answer(kind: u16, program: &[u8]) -> Vec<u8> {
        let mut answer = message(libc::RTM_NEWLINK, &[0; BODY_LEN], &[(3, b"eth0")]);
        answer.extend(((4 + program.len()) as u16).to_ne_bytes());
        answer.extend(kind.to_ne_bytes());
        answer.extend(program);
        let len = answer.len() as u32;
        answer[..4].copy_from_slice(&len.to_ne_bytes());
        answer
    }

    #[test]
    fn a_program_has_a_number() {
        // Where it is attached (one byte, padded), and its number.
        let program = [5u16, 2].map(u16::to_ne_bytes).concat();
        let program = [&program, &[1, 0, 0, 0][..]].concat();
        let number = [
            [8u16, PROGRAM_NUMBER].map(u16::to_ne_bytes).concat(),
            77u32.to_ne_bytes().to_vec(),
        ];
        let whole = [program.clone(), number.concat()].concat();
        assert_eq!(read(&answer(XDP, &whole)), Some(77));
        assert_eq!(read(&answer(XDP | NESTED, &whole)), Some(77));
        assert_eq!(read(&answer(XDP, &program)), None, "no program");
        let answer = answer(XDP, &whole);
        for len in 0..answer.len() {
            assert_eq!(read(&answer[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn the_loopback_interface_has_none() {
        assert_eq!(occupant("lo"), None);
        assert_eq!(occupant("no-such-interface"), None);
    }
}
