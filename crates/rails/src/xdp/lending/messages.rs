//! Messages between a rail and the service: a version, a kind, fields, each way one at a time.

use std::net::{IpAddr, Ipv6Addr};

/// Version of these messages.
const VERSION: u8 = 2;
/// Bytes of the longest message.
pub(super) const LEN_MAX: usize = 512;

const SOCKET: u8 = 1;
const REDIRECT: u8 = 2;
const LENT: u8 = 3;
const REDIRECTED: u8 = 4;
const REFUSED: u8 = 5;

/// From a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Asks for a socket for any free queue of the interface with this index.
    Socket {
        /// Index.
        interface: u32,
    },
    /// Asks for the datagrams to a port. The AF_XDP socket, and a UDP socket with this address, are
    /// sent beside.
    Redirect {
        /// Index of the interface.
        interface: u32,
        /// Queue to which the AF_XDP socket is bound.
        queue: u32,
        /// Address of the rail.
        ip: IpAddr,
        /// Its port.
        port: u16,
    },
}

/// From the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A socket is sent beside, for this queue.
    Lent {
        /// Queue.
        queue: u32,
        /// The driver runs the program.
        in_driver: bool,
    },
    /// The socket gets the port's datagrams while the connection lasts.
    Redirected,
    /// The reason, for people, of a refusal.
    Refused(String),
}

impl Request {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        match *self {
            Request::Socket { interface } => {
                bytes.push(SOCKET);
                bytes.extend(interface.to_le_bytes());
            }
            Request::Redirect {
                interface,
                queue,
                ip,
                port,
            } => {
                bytes.push(REDIRECT);
                bytes.extend(interface.to_le_bytes());
                bytes.extend(queue.to_le_bytes());
                bytes.extend(in_v6(ip).octets());
                bytes.extend(port.to_le_bytes());
            }
        }
        bytes
    }

    /// Reads a message; the error says what is wrong with it.
    pub(super) fn parse(bytes: &[u8]) -> Result<Request, String> {
        let (kind, mut fields) = opened(bytes)?;
        let request = match kind {
            SOCKET => Request::Socket {
                interface: u32::from_le_bytes(fields.take()?),
            },
            REDIRECT => Request::Redirect {
                interface: u32::from_le_bytes(fields.take()?),
                queue: u32::from_le_bytes(fields.take()?),
                ip: Ipv6Addr::from(fields.take::<16>()?).to_canonical(),
                port: u16::from_le_bytes(fields.take()?),
            },
            kind => return Err(unknown(kind)),
        };
        fields.end().map(|()| request)
    }
}

impl Answer {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        match self {
            Answer::Lent { queue, in_driver } => {
                bytes.push(LENT);
                bytes.extend(queue.to_le_bytes());
                bytes.push((*in_driver).into());
            }
            Answer::Redirected => bytes.push(REDIRECTED),
            Answer::Refused(why) => {
                bytes.push(REFUSED);
                bytes.extend(why.bytes().take(LEN_MAX - bytes.len()));
            }
        }
        bytes
    }

    /// Reads a message; the error says what is wrong with it.
    pub(super) fn parse(bytes: &[u8]) -> Result<Answer, String> {
        let (kind, mut fields) = opened(bytes)?;
        let answer = match kind {
            LENT => Answer::Lent {
                queue: u32::from_le_bytes(fields.take()?),
                in_driver: fields.take::<1>()? != [0],
            },
            REDIRECTED => Answer::Redirected,
            REFUSED => {
                let text = String::from_utf8_lossy(std::mem::take(&mut fields.0));
                Answer::Refused(text.chars().filter(|c| !c.is_control()).collect())
            }
            kind => return Err(unknown(kind)),
        };
        fields.end().map(|()| answer)
    }
}

/// An address as one of IPv6; one of IPv4 is mapped (RFC 4291, section 2.5.5.2).
fn in_v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// The kind and the fields of a message.
fn opened(bytes: &[u8]) -> Result<(u8, Fields<'_>), String> {
    match bytes {
        [VERSION, kind, fields @ ..] => Ok((*kind, Fields(fields))),
        [other, _, ..] if *other != VERSION => Err(format!(
            "a message of version {other}, which is not version {VERSION}: the rail and the \
             service are of different versions of Marline"
        )),
        _ => Err(format!("a message of {} bytes", bytes.len())),
    }
}

fn unknown(kind: u8) -> String {
    format!("a message of unknown kind {kind}")
}

/// The fields not read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let split = self.0.split_first_chunk();
        let (field, rest) = split.ok_or("a message that is too short")?;
        self.0 = rest;
        Ok(*field)
    }

    fn end(&self) -> Result<(), String> {
        match self.0 {
            [] => Ok(()),
            _ => Err("a message that is too long".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const REQUESTS: [Request; 3] = [
        Request::Socket { interface: 7 },
        Request::Redirect {
            interface: 0x0102_0304,
            queue: 5,
            ip: IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2)),
            port: 4_242,
        },
        Request::Redirect {
            interface: 1,
            queue: 0,
            ip: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
            port: 4_243,
        },
    ];

    fn answers() -> [Answer; 3] {
        [
            Answer::Lent {
                queue: 3,
                in_driver: true,
            },
            Answer::Redirected,
            Answer::Refused("no: ü".to_owned()),
        ]
    }

    #[test]
    fn what_was_written_is_read() {
        for request in REQUESTS {
            assert_eq!(Request::parse(&request.bytes()), Ok(request));
        }
        for answer in answers() {
            assert_eq!(Answer::parse(&answer.bytes()), Ok(answer));
        }
    }

    #[test]
    fn a_long_reason_is_cut_and_no_reason_has_control_characters() {
        let long = Answer::Refused("ü".repeat(LEN_MAX));
        assert_eq!(long.bytes().len(), LEN_MAX);
        assert!(matches!(
            Answer::parse(&long.bytes()),
            Ok(Answer::Refused(_))
        ));
        let odd = Answer::Refused("a\x1b[2Jb\n".to_owned());
        assert_eq!(
            Answer::parse(&odd.bytes()),
            Ok(Answer::Refused("a[2Jb".to_owned()))
        );
    }

    #[test]
    fn bad_messages_are_errors() {
        for request in REQUESTS {
            let whole = request.bytes();
            for len in 0..whole.len() {
                assert!(Request::parse(&whole[..len]).is_err(), "{len} bytes");
            }
            let longer = [whole.as_slice(), &[0]].concat();
            assert_eq!(
                Request::parse(&longer),
                Err("a message that is too long".to_owned())
            );
            for at in 0..whole.len() {
                for value in 0..=u8::MAX {
                    let mut other = whole.clone();
                    other[at] = value;
                    let _ = (Request::parse(&other), Answer::parse(&other));
                }
            }
        }
        let why = Request::parse(&[1, SOCKET, 0, 0, 0, 0]).unwrap_err();
        assert!(
            why.contains("version 1") && why.contains("different versions"),
            "{why}"
        );
        let why = Request::parse(&[VERSION, 99]).unwrap_err();
        assert!(why.contains("kind 99"), "{why}");
        assert!(Answer::parse(&[VERSION, LENT, 0]).is_err());
        assert!(Answer::parse(&[]).is_err());
    }
}
