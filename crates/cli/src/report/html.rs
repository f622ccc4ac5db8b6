//! A report as one HTML file, without scripts and without addresses of other files.

use super::data::{Facts, JobReport, Report};
use super::text::{
    heading, lines, pairs_heading, protection, shown_waits, size_class, wait_class, PAIRS, RAILS,
    TALKERS, WAITS,
};
use super::timeline::timeline;
use super::{curves, heat};
use marline_engine::stats::text::{format_bytes, format_count};
use maud::{html, Markup, PreEscaped, DOCTYPE};

/// Forbids the browser to load anything else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The style of the page, dark on displays that are set so.
const STYLE: &str = "
:root { color-scheme: light dark; --line: #8888; --bad: #c62828; --warn: #b26a00; --up: #8883; }
body { font: 15px/1.45 sans-serif; max-width: 64rem; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
ul { padding-left: 1.2rem; } .fault { color: var(--bad); } .warning { color: var(--warn); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; } svg { width: 100%; min-width: 40rem; font: 11px sans-serif; }
svg text { fill: currentColor; } .up { fill: var(--up); } .down { fill: var(--bad); }
.corrupt { fill: var(--warn); } .mark { stroke: var(--line); stroke-width: .5; }
.dead { stroke: var(--bad); stroke-width: 2; } .received { fill: var(--up); }
.sent { fill: none; stroke: currentColor; } .wide > svg.heat { min-width: 0; max-width: 100%; }
.heat rect { width: 13px; height: 13px; fill: var(--bad); }
 footer { margin-top: 2rem; opacity: .7; }
";

/// The whole page.
pub fn page(report: &Report) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width";
                title { "Marline report" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                @for one in &report.jobs { (job(one)) }
                @if report.jobs.is_empty() {
                    p { "No process was in touch with another over Marline." }
                }
                footer {
                    "marline " (report.version) ", statistics of version " (report.pages_version)
                }
            }
        }
    };
    page.into_string()
}

fn job(job: &JobReport) -> Markup {
    let f = &job.facts;
    let look_at = job.look_at();
    html! {
        section {
            h1 { (heading(f)) }
            h2 { "What happened" }
            ul.findings {
                @for finding in &job.findings {
                    li class=(finding.severity.name()) { (finding.marked()) }
                }
            }
            @if !look_at.is_empty() {
                h2 { "What to look at" }
                ol { @for text in look_at { li { (text) } } }
            }
            h2 { "Rails and outages" }
            div.wide { (timeline(f)) }
            h2 { "Traffic of the rails" }
            div.wide { (rails(f)) }
            @if !f.bandwidth.rails.is_empty() {
                h2 { "Bandwidth over time" }
                div.wide { (curves::pictures(f)) }
            }
            @if heat::has_pairs(&f.between_hosts) {
                h2 { "Bytes between hosts" }
                div.wide { (heat::picture(&f.between_hosts)) }
            }
            h2 { (pairs_heading(f)) }
            div.wide { (pairs(f)) }
            h2 { "Processes that sent most" }
            div.wide { (talkers(f)) }
            h2 { "Messages by size" }
            (sizes(f))
            @if !shown_waits(f).is_empty() {
                h2 { "Messages by wait" }
                p { "From the first chance to leave to the last ack; without the time in which a \
                     rendezvous message has no receive." }
                (waits(f))
            }
            h2 { "Average per process" }
            (averages(f))
            h2 { "Versions and settings" }
            ul.settings { @for line in lines(f) { li { (line) } } }
            p { (protection(f)) }
        }
    }
}

/// A number for reading, with the exact one.
fn count(value: u64) -> Markup {
    html! { data value=(value) title=(value) { (format_count(value)) } }
}

fn bytes(value: u64) -> Markup {
    html! { data value=(value) title=(value) { (format_bytes(value)) } }
}

fn headings(names: &[&str]) -> Markup {
    html! { thead { tr { @for name in names { th scope="col" { (name) } } } } }
}

fn rails(f: &Facts) -> Markup {
    html! {
        table.rails {
            (headings(&RAILS))
            tbody {
                @for rail in &f.rails {
                    tr {
                        td title=(rail.address) { (rail.end.name()) }
                        td { (bytes(rail.bytes_sent)) }
                        td { (bytes(rail.bytes_received)) }
                        td { (count(rail.packets_sent)) }
                        td { (count(rail.lost)) }
                        td { (count(rail.resent)) }
                        td { (count(rail.resent_spurious)) }
                        td { (count(rail.corrupt)) }
                        td { (count(rail.failovers)) }
                    }
                }
            }
        }
    }
}

fn pairs(f: &Facts) -> Markup {
    html! {
        table.pairs {
            (headings(&PAIRS))
            tbody {
                @for pair in &f.pairs {
                    tr {
                        td { (pair.from) }
                        td { (pair.to) }
                        td { (count(pair.messages)) }
                        td { (bytes(pair.bytes)) }
                    }
                }
            }
        }
    }
}

fn talkers(f: &Facts) -> Markup {
    html! {
        table.talkers {
            (headings(&TALKERS))
            tbody {
                @for talker in &f.talkers {
                    tr {
                        td { (talker.process) }
                        td { (count(talker.messages)) }
                        td { (bytes(talker.bytes)) }
                    }
                }
            }
        }
    }
}

fn averages(f: &Facts) -> Markup {
    html! {
        table.averages {
            tbody {
                @for mean in &f.averages {
                    tr { td { (mean.name) } td { data value=(mean.mean) { (mean.text) } } }
                }
            }
        }
    }
}

fn sizes(f: &Facts) -> Markup {
    html! {
        table.sizes {
            thead { tr { @for size in &f.sizes { th { (size_class(size.up_to_bytes)) } } } }
            tbody { tr { @for size in &f.sizes { td { (count(size.messages)) } } } }
        }
    }
}

fn waits(f: &Facts) -> Markup {
    html! {
        table.waits {
            (headings(&WAITS))
            tbody {
                @for wait in shown_waits(f) {
                    tr {
                        td { (wait_class(wait)) }
                        td { (count(wait.eager)) }
                        td { (count(wait.rendezvous)) }
                    }
                }
            }
        }
    }
}
