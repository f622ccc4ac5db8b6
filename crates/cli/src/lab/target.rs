//! The targets of a fault, and the faults that an order sets there.

use super::fault::{Active, Dir, Effect, Order, Span};
use super::state::Lab;

/// A rail of one host or of all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// A host; `None` for all hosts.
    pub host: Option<usize>,
    /// The rail.
    pub rail: usize,
}

/// Parses `RAIL` or `HOST:RAIL`.
pub fn parse_target(lab: &Lab, word: &str) -> Result<Target, String> {
    match word.split_once(':') {
        Some((host, rail)) => Ok(Target {
            host: Some(lab.find_host(host)?),
            rail: lab.find_rail(rail)?,
        }),
        None => Ok(Target {
            host: None,
            rail: lab.find_rail(word)?,
        }),
    }
}

/// The faults that `order` sets on `target`.
///
/// Without a host or direction, each packet meets a fault once: at its receiver if the fault models
/// the fabric; but a rate applies at both ends, since it is a property of the hosts' links.
pub fn expand(lab: &Lab, target: Target, effect: Effect, order: &Order, span: Span) -> Vec<Active> {
    let dirs: &[Dir] = match (effect, order.dir, target.host) {
        (e, ..) if e.is_link() => &[Dir::Out],
        (Effect::Forget(_), ..) => &[Dir::Out],
        (_, Some(Dir::In), _) => &[Dir::In],
        (_, Some(Dir::Out), _) => &[Dir::Out],
        (Effect::Rate(_), None, _) | (_, None, Some(_)) => &[Dir::In, Dir::Out],
        (Effect::Delay(_), None, None) => &[Dir::Out],
        (_, None, None) => &[Dir::In],
    };
    let hosts = match target.host {
        Some(host) => host..host + 1,
        None => 0..lab.shape.hosts,
    };
    hosts
        .flat_map(|host| dirs.iter().map(move |&dir| (host, dir)))
        .map(|(host, dir)| Active {
            host,
            rail: target.rail,
            dir,
            effect: once_more(lab, (host, target.rail), effect),
            ports: order.ports,
            span,
        })
        .collect()
}

/// The effect of a repeated order, which may already be in force on a host's rail.
fn once_more(lab: &Lab, at: (usize, usize), effect: Effect) -> Effect {
    let before = lab.faults.iter().find_map(|fault| match fault.effect {
        Effect::Forget(times) if (fault.host, fault.rail) == at => Some(times),
        _ => None,
    });
    match effect {
        Effect::Forget(times) => Effect::Forget(before.unwrap_or(0) + times),
        other => other,
    }
}
