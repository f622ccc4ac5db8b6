//! The words between the coordinator and the agents on the hosts: one JSON object a line.

use super::finding::Finding;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Version of these words.
pub const WORDS: u32 = 1;

/// A request of the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Open sockets on all rails. Answer: `Opened`.
    Open(Open),
    /// Read the clock. Answer: `Clock`.
    Clock,
    /// Find out which of these rails can be reached. Answer: `Contacted`.
    Contact {
        /// The rails of other hosts.
        targets: Vec<Target>,
    },
    /// Measure the ways to these rails. Answer: `Measured`.
    Measure {
        /// The rails of another host.
        targets: Vec<Target>,
    },
    /// Tell what arrived so far. Answer: `Tally`.
    Tally,
}

/// The content of a request to open sockets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Open {
    /// Random number in all packets of this run.
    pub run: u64,
    /// The host's number.
    pub host: u16,
    /// `FI_MARLINE_RAILS`, if the coordinator has it.
    pub rails: Option<String>,
    /// Least and most port of `FI_MARLINE_PORTS`.
    pub ports: Option<(u16, u16)>,
}

/// A rail of a host as seen from a rail of another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    /// The asked host's own rail.
    pub from: u8,
    /// Number of the other host.
    pub host: u16,
    /// The other host's rail.
    pub rail: u8,
    /// Its UDP socket.
    pub udp: SocketAddr,
    /// Its UDP socket outside of the range of ports, where there is a range.
    pub any_port: Option<SocketAddr>,
    /// Its TCP listener.
    pub tcp: Option<SocketAddr>,
    /// Largest IP packets to try, in bytes, the largest first.
    pub sizes: Vec<u16>,
}

/// An answer of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Answer {
    /// To `Open`.
    Opened(Opened),
    /// To `Clock`.
    Clock {
        /// Nanoseconds since 1970.
        unix_ns: u64,
    },
    /// To `Contact`, in order of the targets.
    Contacted {
        /// Results.
        contacts: Vec<Contact>,
    },
    /// To `Measure`, in order of the targets.
    Measured {
        /// Results.
        measures: Vec<Measure>,
    },
    /// To `Tally`.
    Tally {
        /// Packets that arrived.
        rows: Vec<Row>,
    },
    /// To any request that cannot be done.
    Error {
        /// The reason.
        why: String,
    },
}

/// A host and its rails.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// [`WORDS`] of the agent.
    pub words: u32,
    /// The command's version with wire and commit.
    pub version: String,
    /// The wire version.
    pub wire: u8,
    /// Rails over IP.
    pub rails: Vec<HostRail>,
    /// Findings on the host alone.
    pub findings: Vec<Finding>,
}

/// A rail over IP.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HostRail {
    /// The interface.
    pub name: String,
    /// Address.
    pub ip: IpAddr,
    /// Bits of the subnet.
    pub prefix_len: u8,
    /// MTU in bytes.
    pub mtu: usize,
    /// Nominal rate in Mbit/s; 0: unknown.
    pub mbit_per_s: u64,
    /// The reason why it cannot carry at present.
    pub down: Option<String>,
    /// The UDP socket; none on a rail that is down.
    pub udp: Option<SocketAddr>,
    /// Its UDP socket outside of the range of ports, where there is a range.
    pub any_port: Option<SocketAddr>,
    /// Its TCP listener.
    pub tcp: Option<SocketAddr>,
    /// Packets go to the doctor's multicast group.
    pub multicast: bool,
}

/// The result of a connection by TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tcp {
    /// Not tried.
    #[default]
    Untried,
    /// Connected.
    Open,
    /// Refused, though the other end listens: a filter that rejects.
    Refused,
    /// No answer: a filter that drops, or no way.
    Silent,
    /// No route, or the host does not answer on its link.
    Unreachable,
}

/// The result of a contact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// An answer came by UDP.
    pub answered: bool,
    /// Connection by TCP.
    pub tcp: Tcp,
}

/// Measurements of a way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Packets sent for the loss.
    pub sent: u32,
    /// Least round trip in microseconds.
    pub rtt_min_us: Option<f64>,
    /// Median round trip in microseconds.
    pub rtt_median_us: Option<f64>,
    /// Rate of a short burst by TCP in Mbit/s.
    pub mbit_per_s: Option<f64>,
}

/// The reason why a packet was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Contact by the port of a job.
    Contact,
    /// Contact by any port.
    AnyPort,
    /// Multicast.
    Group,
    /// Round trips.
    RoundTrip,
    /// Packet sizes.
    Size,
    /// Loss.
    Loss,
}

/// Packets that arrived from one rail at another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The sender.
    pub host: u16,
    /// Its rail.
    pub rail: u8,
    /// The rail of arrival.
    pub at: u8,
    /// Reason of the packets.
    pub purpose: Purpose,
    /// Number of them.
    pub count: u32,
    /// Bytes of the longest, as an IP packet.
    pub longest: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_single_lines() {
        let open = Request::Open(Open {
            run: 1,
            host: 2,
            rails: Some("a\nb".to_owned()),
            ports: None,
        });
        let line = serde_json::to_string(&open).unwrap();
        assert_eq!(
            line,
            r#"{"do":"open","run":1,"host":2,"rails":"a\nb","ports":null}"#
        );
        assert!(serde_json::from_str::<Request>(&line).is_ok());
        let tally = Answer::Tally { rows: Vec::new() };
        let line = serde_json::to_string(&tally).unwrap();
        assert_eq!(line, r#"{"is":"tally","rows":[]}"#);
        assert!(serde_json::from_str::<Answer>("{\"is\":\"else\"}").is_err());
    }
}
