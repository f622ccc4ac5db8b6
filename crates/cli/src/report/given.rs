//! Versions and settings of the processes of a job.

use marline_engine::stats::rows::JobPage;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// A version or a setting, and the number of processes that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Given {
    /// The version, or `FI_MARLINE_NAME=value`.
    pub text: String,
    /// Number of processes.
    pub processes: usize,
}

fn counted(texts: impl Iterator<Item = String>) -> Vec<Given> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    texts.for_each(|text| *counts.entry(text).or_default() += 1);
    let given = |(text, processes)| Given { text, processes };
    counts.into_iter().map(given).collect()
}

/// One page of each process that was in touch with others.
fn of_processes<'a>(pages: &[&'a JobPage]) -> impl Iterator<Item = &'a JobPage> {
    let mut known = Vec::new();
    let used = pages.iter().copied().filter(|page| page.is_used());
    used.filter(move |page| {
        let key = page.process_key();
        let new = key.is_none() || !known.contains(&key);
        known.push(key);
        new
    })
    .collect::<Vec<_>>()
    .into_iter()
}

/// Versions of the library and of the wire protocol.
pub fn versions(pages: &[&JobPage]) -> Vec<Given> {
    counted(of_processes(pages).map(|page| {
        let wire = match (page.wire_oldest, page.wire_newest) {
            (oldest, newest) if oldest == newest => newest.to_string(),
            (oldest, newest) => format!("{oldest} to {newest}"),
        };
        format!("{} (wire {wire})", page.library)
    }))
}

/// Settings that differ from their defaults.
pub fn settings(pages: &[&JobPage]) -> Vec<Given> {
    let all = of_processes(pages).flat_map(|page| &page.settings);
    counted(all.map(|given| given.0.clone()))
}
