//! The result for people, and as JSON.

use super::facts::{Cluster, Host, Path};
use super::finding::{exit_status, text as of_findings, Finding};
use super::messages::{HostRail, Tcp};
use serde::Serialize;

/// The result on this host.
#[derive(Serialize)]
struct Local<'a> {
    version: &'static str,
    exit_status: u8,
    findings: &'a [Finding],
}

/// The result on several hosts.
#[derive(Serialize)]
struct Several<'a> {
    version: &'static str,
    exit_status: u8,
    findings: &'a [Finding],
    hosts: Vec<HostRow<'a>>,
    paths: Vec<PathRow>,
}

#[derive(Serialize)]
struct HostRow<'a> {
    name: &'a str,
    /// `null`: it could not be examined.
    version: Option<&'a str>,
    wire: Option<u8>,
    clock_ns: Option<i64>,
    clock_error_ns: Option<u64>,
    rails: &'a [HostRail],
}

#[derive(Serialize)]
struct PathRow {
    from: String,
    to: String,
    carries: bool,
    tcp: Tcp,
    multicast: Option<bool>,
    loss_percent: Option<f64>,
    mtu: Option<u16>,
    rtt_min_us: Option<f64>,
    rtt_median_us: Option<f64>,
    /// Of a short burst: approximate.
    mbit_per_s: Option<f64>,
}

/// The findings on this host as JSON.
pub fn local_json(findings: &[Finding]) -> Result<String, String> {
    to_json(&Local {
        version: marline_version::TEXT,
        exit_status: exit_status(findings),
        findings,
    })
}

/// All facts and findings as JSON.
pub fn json(cluster: &Cluster, findings: &[Finding]) -> Result<String, String> {
    to_json(&Several {
        version: marline_version::TEXT,
        exit_status: exit_status(findings),
        findings,
        hosts: cluster.hosts.iter().map(host_row).collect(),
        paths: cluster.paths.iter().map(|p| path_row(cluster, p)).collect(),
    })
}

fn to_json(value: &impl Serialize) -> Result<String, String> {
    let json = serde_json::to_string_pretty(value).map_err(|e| format!("--json: {e}"))?;
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
    let rows: Vec<[String; 7]> = cluster.paths.iter().map(|p| columns(cluster, p)).collect();
    let heads = ["from", "to", "MTU", "loss", "RTT min", "median", "about"].map(str::to_owned);
    let width = |at: usize| {
        let lengths = rows
            .iter()
            .chain([&heads])
            .map(|row| row[at].chars().count());
        lengths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    out += "\n";
    for row in std::iter::once(&heads).chain(&rows) {
        let cell = |(at, text): (usize, &String)| match at {
            0 | 1 => format!("{text:<width$}", width = widths[at]),
            _ => format!("{text:>width$}", width = widths[at]),
        };
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        out += &format!("{}\n", cells.join("  "));
    }
    out
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
