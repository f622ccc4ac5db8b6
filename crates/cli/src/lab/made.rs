//! A lab that a command makes for itself.

use super::state::Lab;
use super::{apply, make, net, order, place, remove, Shape};
use crate::outcome::Failure;
use std::fs;

/// A lab with a switch, which is removed when this is dropped.
pub struct Made {
    lab: Lab,
}

impl Made {
    /// Makes a lab without segmentation offload: each packet of the wire meets faults alone.
    pub fn new(name: &str, shape: Shape) -> Result<Made, Failure> {
        let lab = make(name, shape, false)?;
        Ok(Made { lab })
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.lab.name
    }

    /// Number of rails.
    pub fn rails(&self) -> usize {
        self.lab.shape.rails
    }

    /// Breaks or mends a rail on all hosts, by the words of `marline lab fault`.
    pub fn fault(&self, rail: usize, words: &str) -> Result<(), Failure> {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        order(&self.lab.name, &rail.to_string(), &words)
    }

    /// Number of packets that faults of this name hit.
    pub fn hits(&self, fault: &str) -> Result<u64, Failure> {
        let counters = apply::counters(&place::running(&self.lab.name)?)?;
        let of_fault = counters.iter().filter(|(text, _)| text.contains(fault));
        Ok(of_fault.filter_map(|(_, packets)| *packets).sum())
    }

    /// Bytes of each rail of the first host, in both directions, since its start.
    pub fn bytes(&self) -> Vec<u64> {
        let holder = self.lab.hosts.first().map_or(0, |host| host.pid);
        let text = fs::read_to_string(format!("/proc/{holder}/net/dev")).unwrap_or_default();
        let names = self.lab.rail_names();
        names.iter().map(|name| bytes_of(&text, name)).collect()
    }

    /// Ends all programs in the lab.
    pub fn end_programs(&self) -> Result<(), Failure> {
        net::end_programs(&self.lab)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // `marline lab down` remains, and says why.
        let _ = remove(&self.lab.name);
    }
}

/// Bytes of an interface in both directions, by /proc/net/dev.
fn bytes_of(text: &str, interface: &str) -> u64 {
    /// Place of the sent bytes behind the received ones.
    const SENT: usize = 8;
    let of_interface = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers = numbers.split_whitespace().map(str::parse::<u64>);
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
        let both = numbers.first()? + numbers.get(SENT)?;
        (name.trim() == interface).then_some(both)
    };
    text.lines().find_map(of_interface).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::bytes_of;

    #[test]
    fn bytes_of_an_interface_go_both_ways() {
        let text = "Inter-|   Receive |  Transmit\n face |bytes packets|bytes packets\n    \
                    lo:       9       1    0    0    0     0          0         0     9       1\n \
                    rail0:  100       2    0    0    0     0          0         0    23       3\n";
        assert_eq!(bytes_of(text, "rail0"), 123);
        assert_eq!(bytes_of(text, "rail1"), 0);
    }
}
