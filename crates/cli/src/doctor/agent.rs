//! The agent that the coordinator starts on each host: it answers requests on its standard input.

use super::endpoint::{Endpoint, Shared};
use super::local;
use super::measure;
use super::messages::{Answer, HostRail, Open, Opened, Request, WORDS};
use marline_codes::Code;
use marline_rails::InterfaceChoice;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest life of an agent, for one whose coordinator vanished behind an open connection.
const LIFE_MAX: Duration = Duration::from_secs(600);

/// An agent after `Open`.
struct Agent {
    shared: Arc<Shared>,
    endpoints: Vec<Option<Endpoint>>,
}

/// Answers requests until the end of the standard input.
pub fn main() -> crate::outcome::Uncoded {
    thread::spawn(|| {
        thread::sleep(LIFE_MAX);
        std::process::exit(i32::from(crate::outcome::EXIT_REFUSED));
    });
    let mut agent = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| format!("standard input: {e}"))?;
        let answer = match serde_json::from_str(&line) {
            Ok(request) => respond(&mut agent, request),
            Err(e) => error(format!("a request of another version: {e}")),
        };
        let text = serde_json::to_string(&answer).map_err(|e| e.to_string())?;
        let mut out = std::io::stdout().lock();
        let wrote = writeln!(out, "{text}").and_then(|()| out.flush());
        wrote.map_err(|e| format!("standard output: {e}"))?;
    }
    Ok(0)
}

fn error(why: String) -> Answer {
    Answer::Error { why }
}

fn respond(agent: &mut Option<Agent>, request: Request) -> Answer {
    match (request, &agent) {
        (Request::Open(how), _) => {
            let (made, opened) = open(&how);
            *agent = Some(made);
            Answer::Opened(opened)
        }
        (Request::Clock, _) => Answer::Clock { unix_ns: unix_ns() },
        (Request::Contact { targets }, Some(agent)) => Answer::Contacted {
            contacts: measure::contact(&agent.shared, &agent.endpoints, &targets),
        },
        (Request::Measure { targets }, Some(agent)) => Answer::Measured {
            measures: measure::measure(&agent.shared, &agent.endpoints, &targets),
        },
        (Request::Tally, Some(agent)) => Answer::Tally {
            rows: agent.shared.rows(),
        },
        (_, None) => error("no rails are open".to_owned()),
    }
}

/// The present time in nanoseconds since 1970.
pub fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as u64)
}

fn open(how: &Open) -> (Agent, Opened) {
    let shared = Arc::new(Shared::new(how.run, how.host));
    let named = how.rails.clone().unwrap_or_else(local::named_rails);
    let (choices, mut findings) = (local::rails(&named), local::findings(&named));
    let (mut rails, mut endpoints) = (Vec::new(), Vec::new());
    for (at, (interface, down)) in choices.unwrap_or_default().into_iter().enumerate() {
        let rail = describe(&interface, down);
        let opened = match rail.down {
            Some(_) => None,
            None => Endpoint::open(at as u8, &interface, how.ports, &shared)
                .map_err(|why| {
                    findings.push(super::finding::Finding::broken(Code::CannotStart, why))
                })
                .ok(),
        };
        rails.push(match &opened {
            Some(endpoint) => endpoint.describe(rail),
            None => rail,
        });
        endpoints.push(opened);
    }
    let opened = Opened {
        words: WORDS,
        version: marline_version::TEXT.to_owned(),
        wire: marline_wire::VERSION,
        rails,
        findings,
    };
    (Agent { shared, endpoints }, opened)
}

fn describe(interface: &InterfaceChoice, down: Option<String>) -> HostRail {
    HostRail {
        name: interface.name.clone(),
        ip: interface.ip,
        prefix_len: interface.prefix_len,
        mtu: interface.mtu,
        mbit_per_s: interface.bytes_per_s / 125_000,
        down,
        udp: None,
        any_port: None,
        tcp: None,
        multicast: false,
    }
}
