//! Reports of silent hosts that operations wait for: in the log of each waiting process, and on
//! standard error by one process per host.

use crate::api::LogLevel;
use crate::core::awaited::AwaitedHosts;
use crate::core::Core;
use crate::platform::system::System;
use crate::progress::host_leader::HostLeader;
use marline_codes::Code;
use std::collections::BTreeMap;

/// State of the reports about silent hosts.
pub(crate) struct Waits {
    hosts: AwaitedHosts,
    /// True if reports also go to standard error.
    to_stderr: bool,
    /// Hosts about which this process reports on standard error.
    leaders: BTreeMap<String, HostLeader>,
}

impl Waits {
    pub(crate) fn new(to_stderr: bool) -> Waits {
        Waits {
            hosts: AwaitedHosts::default(),
            to_stderr,
            leaders: BTreeMap::new(),
        }
    }

    /// Prints the reports that are due.
    pub(crate) fn report<S: System>(&mut self, now: u64, core: &mut Core<S>) {
        for said in core.say_awaited(now, &mut self.hosts) {
            core.warn(Code::PeerAwaited, &said.text);
            if !self.to_stderr {
                continue;
            }
            if !self.leaders.contains_key(&said.host) {
                if let Some(host_leader) = HostLeader::take(&said.host) {
                    self.leaders.insert(said.host.clone(), host_leader);
                }
            }
            if self.leaders.contains_key(&said.host) {
                let text = Code::PeerAwaited.mark(&said.text);
                core.say(LogLevel::Report, &format!("Marline: {text}\n"));
            }
            if said.over {
                self.leaders.remove(&said.host);
            }
        }
    }
}
