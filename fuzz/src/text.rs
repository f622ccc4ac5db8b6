//! The two grammars that users write: `FI_MARLINE_*` settings and fault scripts.

use crate::input::Input;
use marline_engine::settings::{self, Settings, PREFIX};
use marline_rails::{
    Caps, Clock, FaultScript, Faulty, Rail, RailEvent, RailRx, RailTx, Received, SendOutcome,
};
use marline_wire::RailAddr;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Lines `NAME=value` as an environment. What is accepted must be shown as it is in force: read
/// back from what `show` prints, it is the same.
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
    // Which rows were given differs: now all that are not empty are.
    let given = read.given;
    assert_eq!(Settings { given, ..again }, read);
}

/// Table name and value of a line that `show` printed.
fn shown_row(line: &str) -> Option<(String, &str)> {
    let (name, rest) = line.strip_prefix(PREFIX)?.split_once('=')?;
    let value = rest.rsplit_once(" (")?.0;
    Some((name.to_ascii_lowercase(), value))
}

/// A fault script up to the first zero byte; what is accepted then has its way with datagrams
/// whose sizes and times the rest of the input gives.
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
    let now_ns = Arc::new(AtomicU64::new(0));
    let read = now_ns.clone();
    let clock: Clock = Arc::new(move || read.load(Ordering::Relaxed));
    let (mut tx, mut rx) = Faulty::new(Mirror(Queue::default()), script, clock).split();
    let kill = &script.tx.kill_at_ns;
    while !input.is_empty() {
        let step_ns = input.pick(&[0, 1, 1_000, 1_000_000, kill.unwrap_or(0), u64::MAX / 64]);
        // The clock of a machine does not wrap.
        let now = now_ns.load(Ordering::Relaxed).saturating_add(step_ns);
        now_ns.store(now, Ordering::Relaxed);
        let len = 1 + input.below(3_000) as usize;
        let segment = 1 + input.below(len as u64) as usize;
        tx.send(&RailAddr::NONE, &vec![7; len], segment, 0);
        let _ = tx.poll_event();
        rx.recv(&mut |r| {
            assert!(!r.bytes.is_empty() && r.segment > 0 && r.segment <= r.bytes.len());
            assert!(r.bytes.len() <= len.max(3_000));
        });
    }
}

type Queue = Arc<Mutex<VecDeque<(Vec<u8>, usize)>>>;

/// A rail that gives back what is sent to it, batch by batch.
struct Mirror(Queue);

impl Mirror {
    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<(Vec<u8>, usize)>> {
        self.0.lock().expect("one thread")
    }
}

impl Rail for Mirror {
    type Tx = Mirror;
    type Rx = Mirror;
    fn split(self) -> (Mirror, Mirror) {
        (Mirror(self.0.clone()), self)
    }
}

impl RailTx for Mirror {
    fn caps(&self) -> Caps {
        Caps {
            datagram_max: 3_000,
            batch_bytes_max: 64_000,
            batch_segments_max: 64,
            receive_buffer_bytes: 1 << 20,
            bytes_per_s: 0,
        }
    }
    fn local_addr(&self) -> RailAddr {
        RailAddr::NONE
    }
    fn send(&mut self, _: &RailAddr, bytes: &[u8], segment: usize, _: u8) -> SendOutcome {
        assert!(!bytes.is_empty() && segment > 0 && segment <= bytes.len());
        self.queue().push_back((bytes.to_vec(), segment));
        SendOutcome::Sent
    }
    fn poll_event(&mut self) -> Option<RailEvent> {
        None
    }
    fn fd(&self) -> Option<i32> {
        None
    }
}

impl RailRx for Mirror {
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let Some((bytes, segment)) = self.queue().pop_front() else {
            return 0;
        };
        sink(Received {
            from: RailAddr::NONE,
            bytes: &bytes,
            segment,
        });
        bytes.len().div_ceil(segment)
    }
}
