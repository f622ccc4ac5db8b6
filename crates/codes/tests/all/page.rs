//! The table of codes and docs/errors.md.

use marline_codes::{document, Code, GROUPS, RETIRED};
use std::collections::BTreeSet;
use std::path::Path;

/// The numbers of the codes that a page has headings for.
fn anchors(page: &str) -> Vec<u16> {
    let heads = page.lines().filter_map(|line| line.strip_prefix("### "));
    let number = |head: &str| head.strip_prefix("MARLINE-E")?.parse().ok();
    heads
        .map(|head| number(head).unwrap_or_else(|| panic!("{head} is no code")))
        .collect()
}

#[test]
fn every_code_has_one_anchor() {
    let all: Vec<u16> = Code::ALL.iter().map(|code| code.number()).collect();
    assert_eq!(anchors(&document()), all);
}

#[test]
fn document_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    for number in anchors(&page) {
        let is_known = Code::of_number(number).is_some() || RETIRED.contains(&number);
        assert!(is_known, "E{number} was given: list it as retired");
    }
    if std::env::var_os("MARLINE_BLESS").is_some() {
        std::fs::write(&path, document()).unwrap();
        return;
    }
    assert_eq!(
        page,
        document(),
        "run MARLINE_BLESS=1 cargo test -p marline-codes"
    );
}

#[test]
fn numbers_ascend_within_groups_and_no_retired_one_is_given_again() {
    let numbers: Vec<u16> = Code::ALL.iter().map(|code| code.number()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    for number in &numbers {
        let mut groups = GROUPS.iter();
        assert!(groups.any(|(n, _)| *n == number / 100), "E{number}");
    }
    let retired: BTreeSet<&u16> = RETIRED.iter().collect();
    assert_eq!(retired.len(), RETIRED.len());
    assert!(numbers.iter().all(|number| !retired.contains(number)));
}

#[test]
fn entries_are_short_and_begin_and_end_as_sentences() {
    let titles: BTreeSet<&str> = Code::ALL.iter().map(|code| code.title()).collect();
    assert_eq!(titles.len(), Code::ALL.len(), "two codes of one title");
    for code in Code::ALL {
        let (title, remedy) = (code.title(), code.remedy());
        assert!(title.starts_with(|c: char| c.is_uppercase()), "{code}");
        assert!(
            title.len() <= 72 && !title.ends_with('.'),
            "{code}: {title}"
        );
        assert!(remedy.ends_with('.'), "{code}: {remedy}");
    }
}

#[test]
fn codes_are_read_as_people_write_them() {
    for text in ["301", "E301", "e301", "MARLINE-E301", "marline-e301"] {
        assert_eq!(Code::named(text), Some(Code::PeerDead), "{text}");
    }
    for text in ["", "E", "E3", "E999", "EE301", "MARLINE-", "-301"] {
        assert_eq!(Code::named(text), None, "{text}");
    }
}
