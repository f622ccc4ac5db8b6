//! Target of the reader of statistics pages, which may come from any writer.

use marline_engine::stats::page::{at, BODY_AT, GROUP_WORDS, MAGIC, VERSION};
use marline_engine::stats::reader::parse_page;
use marline_engine::stats::report::report;
use marline_engine::stats::summary::Summary;
use std::path::Path;

/// Parses any bytes as a page, unchanged and with a valid header.
pub fn stats_page(data: &[u8]) {
    let name = Path::new("page");
    let _ = parse_page(name, data);
    let mut words: Vec<u64> = data
        .chunks(8)
        .map(|eight| {
            let mut word = [0; 8];
            word[..eight.len()].copy_from_slice(eight);
            u64::from_ne_bytes(word)
        })
        .collect();
    words.resize(words.len().max(BODY_AT), 0);
    (words[at::MAGIC], words[at::VERSION]) = (MAGIC, VERSION);
    // An odd sequence number (the writer died while writing) lets the reader accept a page that
    // lacks a part.
    words[at::SEQUENCE] |= 1;
    for (word, count) in words[at::GROUPS..].iter_mut().zip(GROUP_WORDS) {
        *word = count as u64;
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let page = parse_page(name, &bytes).expect("a page with a right header is read");
    page.elapsed_ns();
    let summary = Summary::of(std::slice::from_ref(&page));
    let _ = report(&summary);
    let names = page.rails.iter().map(|rail| &rail.name);
    assert!(names
        .chain([&page.host])
        .all(|n| !n.contains(char::is_control)));
}
