//! Targets of the two grammars that users write: `FI_MARLINE_*` settings and fault scripts.

use crate::input::Input;
use marline_engine::settings::{self, Settings, PREFIX};
use marline_rails::{FaultScript, RailRx, RailTx};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

#[path = "../../crates/rails/tests/mirror/mod.rs"]
mod mirror;

/// Parses lines `NAME=value` as an environment. Accepted settings must be the same when read back
/// from the output of `show`.
pub fn settings(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let given: BTreeMap<&str, &str> = pairs.collect();
    settings::unknown_in(given.keys());
    let lookup = |name: &str| Some((*given.get(name)?).to_owned());
    let read = match Settings::from_lookup(lookup) {
        Ok(read) => read,
        Err(text) => {
            assert!(text.contains(PREFIX), "{text}");
            return;
        }
    };
    let shown = read.show();
    let known: BTreeMap<String, &str> = shown.lines().filter_map(shown_row).collect();
    let lookup = |name: &str| Some((*known.get(name)?).to_owned());
    let again = Settings::from_lookup(lookup).expect("what is shown can be read");
    // The set of given rows differs: read back, all rows that are not empty are given.
    let given = read.given;
    assert_eq!(Settings { given, ..again }, read);
}

/// Table name and value of a line from `show`.
fn shown_row(line: &str) -> Option<(String, &str)> {
    let (name, rest) = line.strip_prefix(PREFIX)?.split_once('=')?;
    let value = rest.rsplit_once(" (")?.0;
    Some((name.to_ascii_lowercase(), value))
}

/// Parses a fault script up to the first zero byte, and applies an accepted one to datagrams whose
/// sizes and times come from the rest of the input.
pub fn faults(data: &[u8]) {
    let cut = data.iter().position(|&b| b == 0).unwrap_or(data.len());
    let text = String::from_utf8_lossy(&data[..cut]);
    let Ok(scripts) = FaultScript::parse_all(&text) else {
        return;
    };
    for script in scripts.iter().take(4) {
        drive(&script.for_rail(1), &mut Input::new(&data[cut..]));
    }
}

fn drive(script: &FaultScript, input: &mut Input<'_>) {
    let (mut tx, mut rx, now_ns) = mirror::faulty(script, 0);
    let kill = &script.tx.kill_at_ns;
    while !input.is_empty() {
        let step_ns = input.pick(&[0, 1, 1_000, 1_000_000, kill.unwrap_or(0), u64::MAX / 64]);
        // A machine's clock does not wrap.
        let now = now_ns.load(Relaxed).saturating_add(step_ns);
        now_ns.store(now, Relaxed);
        let len = 1 + input.below(3_000) as usize;
        let segment = 1 + input.below(len as u64) as usize;
        tx.send(marline_rails::LinkId(0), &vec![7; len], segment, 0);
        let _ = tx.poll_event();
        rx.recv(&mut |r| {
            assert!(!r.bytes.is_empty() && r.segment > 0 && r.segment <= r.bytes.len());
            assert!(r.bytes.len() <= len.max(3_000));
        });
    }
}
