//! Findings of the doctor as data: severity, the finding, the reason, and the command that mends
//! it.

use marline_codes::Code;
use marline_engine::stats::text::wrap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The weight of a finding, the heaviest first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something does not work.
    Broken,
    /// Something works less well than it could.
    Warning,
    /// For information.
    Good,
}

impl Severity {
    /// The exit status of a run whose heaviest finding is this one.
    pub fn exit_status(self) -> u8 {
        match self {
            Severity::Good => 0,
            Severity::Warning => 1,
            Severity::Broken => 2,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Severity::Broken => "broken",
            Severity::Warning => "warning",
            Severity::Good => "good",
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Its weight.
    pub severity: Severity,
    /// Hosts that have it; empty on the only host.
    pub hosts: Vec<String>,
    /// The finding, without the hosts.
    pub what: String,
    /// The code, of which `marline explain` has the meaning; null for information.
    #[serde(default)]
    pub code: Option<String>,
    /// The reason why it matters, or how it was found; may be empty.
    pub reason: String,
    /// The command or step that mends it; may be empty.
    pub mend: String,
}

impl Finding {
    /// A finding of this weight with its code, if it has one.
    pub fn new(severity: Severity, code: Option<Code>, what: impl Into<String>) -> Finding {
        Finding {
            severity,
            hosts: Vec::new(),
            what: what.into(),
            code: code.map(|code| code.to_string()),
            reason: String::new(),
            mend: String::new(),
        }
    }

    /// Something that does not work.
    pub fn broken(code: Code, what: impl Into<String>) -> Finding {
        Finding::new(Severity::Broken, Some(code), what)
    }

    /// Something that works less well than it could.
    pub fn warning(code: Code, what: impl Into<String>) -> Finding {
        Finding::new(Severity::Warning, Some(code), what)
    }

    /// Something for information.
    pub fn good(what: impl Into<String>) -> Finding {
        Finding::new(Severity::Good, None, what)
    }

    /// Adds the reason.
    pub fn because(mut self, reason: impl Into<String>) -> Finding {
        self.reason = reason.into();
        self
    }

    /// Adds the command that mends it.
    pub fn mend(mut self, mend: impl Into<String>) -> Finding {
        self.mend = mend.into();
        self
    }

    /// Adds a host.
    pub fn on(mut self, host: &str) -> Finding {
        self.hosts.push(host.to_owned());
        self
    }

    fn text(&self) -> String {
        let hosts = match &self.hosts[..] {
            [] => String::new(),
            hosts => format!("{}: ", hosts.join(", ")),
        };
        let reason = match &self.reason[..] {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        let code = match &self.code {
            Some(code) => format!(" [{code}]"),
            None => String::new(),
        };
        let name = self.severity.name();
        let mut text = wrap(&format!("{name}: {hosts}{}{reason}{code}", self.what));
        for line in self.mend.lines() {
            text += &format!("    {line}\n");
        }
        text
    }
}

/// Puts findings that several hosts share together, the heaviest first.
pub fn arrange(findings: Vec<Finding>) -> Vec<Finding> {
    let mut merged: BTreeMap<Finding, Vec<String>> = BTreeMap::new();
    for mut finding in findings {
        let hosts = std::mem::take(&mut finding.hosts);
        let known = merged.entry(finding).or_default();
        for host in hosts {
            if !known.contains(&host) {
                known.push(host);
            }
        }
    }
    let together = merged.into_iter();
    together
        .map(|(finding, hosts)| Finding { hosts, ..finding })
        .collect()
}

/// The exit status of these findings.
pub fn exit_status(findings: &[Finding]) -> u8 {
    let statuses = findings.iter().map(|f| f.severity.exit_status());
    statuses.max().unwrap_or(0)
}

/// The findings for people.
pub fn text(findings: &[Finding]) -> String {
    findings.iter().map(Finding::text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_finding_gives_the_status() {
        assert_eq!(exit_status(&[]), 0);
        assert_eq!(exit_status(&[Finding::good("a")]), 0);
        let all = [Finding::good("a"), Finding::warning(Code::Clock, "b")];
        assert_eq!(exit_status(&all), 1);
        let all = [
            Finding::broken(Code::Loss, "c"),
            Finding::warning(Code::Clock, "b"),
        ];
        assert_eq!(exit_status(&all), 2);
    }

    #[test]
    fn findings_of_several_hosts_are_put_together() {
        let low = || {
            Finding::warning(Code::Clock, "low")
                .because("so")
                .mend("do\nthis")
        };
        let all = vec![
            Finding::good("fine"),
            low().on("h1"),
            low().on("h0"),
            low().on("h1"),
            Finding::broken(Code::Loss, "dead").on("h2"),
        ];
        let said = text(&arrange(all));
        assert_eq!(
            said,
            "broken: h2: dead [MARLINE-E312]\n\
             warning: h1, h0: low: so [MARLINE-E214]\n    do\n    this\n\
             good: fine\n"
        );
    }
}
