//! Reads the pages of engines, running or ended. Nothing in a page is trusted.

use super::events::Events;
use super::layout::*;
use super::ring::SLOT_WORDS;
use super::rows::JobPage;
use super::words::{Source, Words};
use crate::platform::owned;
use std::cmp::Ordering;
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Lists the pages in a directory that this user may read, sorted by name; empty without the
/// directory. Skips entries that are not regular files of this user, since any user may create
/// files in /dev/shm, and names with characters that control a terminal.
pub fn list_pages(dir: &Path) -> Vec<PathBuf> {
    let mut pages = named_as_pages(dir, owned::readable);
    pages.sort();
    pages
}

/// Counts other users' pages, which this user may not read, by their names.
pub fn count_foreign(dir: &Path) -> usize {
    named_as_pages(dir, |found| found.is_file() && !owned::readable(found)).len()
}

fn named_as_pages(dir: &Path, good: impl Fn(&Metadata) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let is_page = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        let named = |name: &str| {
            let whole = name.starts_with("marline-") && name.ends_with(".page");
            whole && name.bytes().all(|b| b.is_ascii_graphic())
        };
        // Does not follow links.
        name.to_str().is_some_and(named) && entry.metadata().is_ok_and(|m| good(&m))
    };
    entries.filter(is_page).map(|e| e.path()).collect()
}

/// Reads only the header of a page, of this version or an earlier one: the process that owns it.
pub fn read_owner(path: &Path) -> Result<JobPage, String> {
    let words = read_words(path, HEADER_WORDS)?;
    match (OWNER_SINCE..VERSION).contains(&get(&words, at::VERSION)) {
        true => check_magic(&words, path)?,
        false => check_header(&words, path)?,
    }
    Ok(with_header(JobPage::default(), &words))
}

/// Reads a page. Waits briefly for a writer that is updating it.
pub fn read_page(path: &Path) -> Result<JobPage, String> {
    const TRIES: u32 = 50; // an update takes microseconds and happens once per 10 ms
    let read = || {
        let words = read_words(path, PAGE_WORDS_MAX)?;
        check_header(&words, path)?;
        Ok(words)
    };
    let (words, torn) = super::sequence::consistent(TRIES, || sequence(path), read)?;
    let (events, user) = read_events(path)?;
    let page = parse(&words, path, torn)?;
    Ok(JobPage {
        user,
        events,
        ..page
    })
}

/// Reads only the events of a page, and the owner of its file.
fn read_events(path: &Path) -> Result<(Events, u32), String> {
    let fail = |e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let file = owned::open_to_read(path).map_err(fail)?;
    let user = file.metadata().map_err(fail)?.uid();
    let events = Events::read(|at| {
        let mut bytes = [0; 8 * SLOT_WORDS];
        match file.read_exact_at(&mut bytes, at as u64 * 8) {
            Err(e) if e.kind() != std::io::ErrorKind::UnexpectedEof => Err(fail(e)),
            _ => Ok(slot(&words_of(&bytes), 0)),
        }
    })?;
    Ok((events, user))
}

/// The words of a slot; missing ones are 0.
fn slot(words: &[u64], at: usize) -> [u64; SLOT_WORDS] {
    std::array::from_fn(|n| get(words, at + n))
}

/// Parses a page's bytes; `path` is for error texts.
pub fn parse_page(path: &Path, bytes: &[u8]) -> Result<JobPage, String> {
    let words = words_of(bytes);
    check_header(&words, path)?;
    let Ok(events) = Events::read(|at| Ok::<_, std::convert::Infallible>(slot(&words, at)));
    let page = parse(&words, path, get(&words, at::SEQUENCE) % 2 == 1)?;
    Ok(JobPage { events, ..page })
}

fn sequence(path: &Path) -> Result<u64, String> {
    let words = read_words(path, at::SEQUENCE + 1)?;
    Ok(words.last().copied().unwrap_or(0))
}

fn read_words(path: &Path, words_max: usize) -> Result<Vec<u64>, String> {
    let fail = |e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let file = owned::open_to_read(path).map_err(fail)?;
    let mut bytes = Vec::new();
    let limit = words_max as u64 * 8;
    file.take(limit).read_to_end(&mut bytes).map_err(fail)?;
    Ok(words_of(&bytes))
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    let eights = bytes.chunks_exact(8);
    eights
        .map(|c| u64::from_ne_bytes(c.try_into().unwrap_or_default()))
        .collect()
}

fn get(words: &[u64], at: usize) -> u64 {
    words.get(at).copied().unwrap_or(0)
}

fn check_magic(words: &[u64], path: &Path) -> Result<(), String> {
    match words.len() >= HEADER_WORDS && words[at::MAGIC] == MAGIC {
        true => Ok(()),
        false => Err(format!(
            "{} is not a statistics page of Marline",
            path.display()
        )),
    }
}

fn check_header(words: &[u64], path: &Path) -> Result<(), String> {
    check_magic(words, path)?;
    let path = path.display();
    let groups = GROUP_WORDS.map(|words| words as u64);
    let same = words[at::GROUPS..].starts_with(&groups);
    let than_ours = match words[at::VERSION].cmp(&VERSION) {
        Ordering::Equal if same => return Ok(()),
        Ordering::Less => "an older",
        Ordering::Greater => "a newer",
        Ordering::Equal => "another",
    };
    Err(format!(
        "{path} is of {than_ours} version of Marline: its own `marline stats` can read it"
    ))
}

/// The page with what its header says.
fn with_header(page: JobPage, words: &[u64]) -> JobPage {
    JobPage {
        pid: get(words, at::PID) as u32,
        pid_start: get(words, at::PID_START),
        pid_space: get(words, at::PID_SPACE),
        host: Source::new(words.get(at::HOST..).unwrap_or_default()).text(HOST_WORDS),
        published_unix_ns: get(words, at::PUBLISHED),
        closed: get(words, at::CLOSED) == 1,
        ..page
    }
}

/// Parses a page without its events. Missing or invalid words are an error, since sums would
/// silently be too small, and states others than their writer meant. A page whose process died
/// during an update (`torn`) is parsed as far as it goes.
fn parse(words: &[u64], path: &Path, torn: bool) -> Result<JobPage, String> {
    let mut body = Source::new(words.get(BODY_AT..).unwrap_or_default());
    let page = JobPage::take(&mut body);
    if (body.short || body.invalid) && !torn {
        return Err(format!("{} is cut off or damaged", path.display()));
    }
    Ok(with_header(JobPage { torn, ..page }, words))
}
