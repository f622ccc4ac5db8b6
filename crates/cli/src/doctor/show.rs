//! The result for people, and as JSON.

use super::facts::{Cluster, Host, Path};
use super::finding::{exit_status, text as of_findings, Finding};
use super::messages::{HostRail, Tcp};
use crate::table::table;
use schemars::JsonSchema;
use serde::Serialize;

/// The result: on this host, or on several.
#[derive(Serialize, JsonSchema)]
pub struct Examined<'a> {
    /// The command's version.
    version: &'static str,
    /// The exit status: 0 good, 1 warnings, 2 broken.
    exit_status: u8,
    /// The findings, the heaviest first.
    findings: &'a [Finding],
    /// The hosts of `--hosts` or `--slurm`.
    hosts: Vec<HostRow<'a>>,
    /// Ways between their rails, each direction apart.
    paths: Vec<PathRow>,
}

/// A host.
#[derive(Serialize, JsonSchema)]
struct HostRow<'a> {
    /// Name in the list.
    name: &'a str,
    /// Its command's version; null: it could not be examined.
    version: Option<&'a str>,
    /// Its version of the wire protocol.
    wire: Option<u8>,
    /// Its clock minus that of the examining host, in nanoseconds.
    clock_ns: Option<i64>,
    /// The error of that at most.
    clock_error_ns: Option<u64>,
    /// Its rails over IP.
    rails: &'a [HostRail],
}

/// A way from a rail to one of another host.
#[derive(Serialize, JsonSchema)]
struct PathRow {
    /// The sender: host and rail.
    from: String,
    /// The receiver: host and rail.
    to: String,
    /// True if packets pass.
    carries: bool,
    /// The result of a connection by TCP.
    tcp: Tcp,
    /// True if packets pass by multicast; null: not tried.
    multicast: Option<bool>,
    /// Packets that were lost, of some hundred.
    loss_percent: Option<f64>,
    /// Bytes of the largest IP packet that passes.
    mtu: Option<u16>,
    /// Least round trip in microseconds.
    rtt_min_us: Option<f64>,
    /// Median round trip in microseconds.
    rtt_median_us: Option<f64>,
    /// Rate of a short burst by TCP: approximate.
    mbit_per_s: Option<f64>,
}

/// The findings on this host as JSON.
pub fn local_json(findings: &[Finding]) -> Result<String, String> {
    json(&Cluster::default(), findings)
}

/// All facts and findings as JSON.
pub fn json(cluster: &Cluster, findings: &[Finding]) -> Result<String, String> {
    let examined = Examined {
        version: marline_version::TEXT,
        exit_status: exit_status(findings),
        findings,
        hosts: cluster.hosts.iter().map(host_row).collect(),
        paths: cluster.paths.iter().map(|p| path_row(cluster, p)).collect(),
    };
    let json = serde_json::to_string_pretty(&examined).map_err(|e| format!("--json: {e}"))?;
    Ok(json + "\n")
}

fn host_row(host: &Host) -> HostRow<'_> {
    let opened = host.opened.as_ref().ok();
    HostRow {
        name: &host.name,
        version: opened.map(|opened| &*opened.version),
        wire: opened.map(|opened| opened.wire),
        clock_ns: host.clock.map(|clock| clock.0),
        clock_error_ns: host.clock.map(|clock| clock.1),
        rails: host.rails(),
    }
}

fn path_row(cluster: &Cluster, path: &Path) -> PathRow {
    let measure = path.measure.as_ref();
    PathRow {
        from: cluster.end(path.from).name(),
        to: cluster.end(path.to).name(),
        carries: path.carries(),
        tcp: path.contact.tcp,
        multicast: path.group_arrived.map(|count| count > 0),
        loss_percent: path.loss_percent(),
        mtu: measure.map(|_| path.size_arrived),
        rtt_min_us: measure.and_then(|m| m.rtt_min_us),
        rtt_median_us: measure.and_then(|m| m.rtt_median_us),
        mbit_per_s: measure.and_then(|m| m.mbit_per_s),
    }
}

/// The findings and a table of the ways.
pub fn text(cluster: &Cluster, findings: &[Finding]) -> String {
    let mut out = of_findings(findings);
    if cluster.paths.is_empty() {
        return out;
    }
    let heads = ["from", "to", "MTU", "loss", "RTT min", "median", "about"];
    let rows = cluster.paths.iter().map(|p| columns(cluster, p));
    out += "\n";
    out + &table(&heads, (2, 2), rows)
}

/// The columns of a way.
fn columns(cluster: &Cluster, path: &Path) -> [String; 7] {
    let row = path_row(cluster, path);
    let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let us = |value: Option<f64>| or(value.map(|us| format!("{us:.0} us")));
    [
        row.from,
        row.to,
        or(row.mtu.map(|mtu| mtu.to_string())),
        or(row.loss_percent.map(|loss| format!("{loss:.1} %"))),
        us(row.rtt_min_us),
        us(row.rtt_median_us),
        or(row.mbit_per_s.map(|mbit| format!("{mbit:.0} Mbit/s"))),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::facts::healthy;
    use super::*;
    use marline_codes::Code;

    #[test]
    fn ways_are_rows_of_a_table() {
        let mut cluster = healthy(2, 1);
        cluster.paths[1].measure = None;
        let said = text(&cluster, &[Finding::warning(Code::Roce, "x")]);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "warning: x [MARLINE-E213]");
        assert!(lines[2].starts_with("from      to         MTU"), "{said}");
        assert!(
            lines[3].starts_with("h0:rail0  h1:rail0  1500  0.0 %"),
            "{said}"
        );
        assert!(lines[3].ends_with("9000 Mbit/s"), "{said}");
        assert!(lines[4].ends_with('-'), "{said}");
    }

    #[test]
    fn json_has_findings_hosts_and_ways() {
        let cluster = healthy(2, 1);
        let said = json(&cluster, &[Finding::warning(Code::Roce, "x").on("h1")]).unwrap();
        let value: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(value["exit_status"], 1);
        assert_eq!(value["findings"][0]["severity"], "warning");
        assert_eq!(value["findings"][0]["code"], "MARLINE-E213");
        assert_eq!(value["findings"][0]["hosts"][0], "h1");
        assert_eq!(value["hosts"][1]["rails"][0]["name"], "rail0");
        assert_eq!(value["paths"][0]["tcp"], "open");
        assert!(local_json(&[]).unwrap().contains("\"exit_status\": 0"));
    }
}
