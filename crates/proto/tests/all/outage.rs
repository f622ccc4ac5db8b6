//! Outages as events: which path, why, how many packets were requeued, and how long nothing was
//! delivered.

use crate::face;

use face::{output, take, Pair};
use marline_proto::{Event, PathReason, PathState};

/// The sender's events about paths.
fn told(pair: &mut Pair) -> Vec<Event> {
    let events = std::iter::from_fn(|| pair.a.poll_event());
    let about = |event: &Event| {
        matches!(
            event,
            Event::PathChanged { .. } | Event::PathSuspect { .. } | Event::Resumed { .. }
        )
    };
    events.filter(about).collect()
}

/// The packets of a failed rail are requeued, and the end of the gap is reported when the first of
/// them has arrived.
#[test]
fn a_failed_rail_reports_requeued_packets_and_the_gap() {
    let mut pair = Pair::new(2, false);
    told(&mut pair);
    pair.message(2, 40_000);
    let began = pair.now;
    let lost = output(&mut pair.a, pair.now, false);
    let rail = lost[0].0;
    let waiting = lost.iter().filter(|packet| packet.0 == rail).count() as u32;
    let other: Vec<_> = lost.into_iter().filter(|packet| packet.0 != rail).collect();
    take(&mut pair.b, pair.now, &other);
    pair.now += 300_000;
    pair.a.on_rail(pair.now, rail, true);
    let at = pair.now;
    let events = told(&mut pair);
    let [Event::PathChanged {
        state, why, moved, ..
    }] = events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!((state, why), (PathState::Down, PathReason::RailDown));
    assert_eq!(moved, waiting);
    pair.settle();
    let events = told(&mut pair);
    let gaps = events.iter().filter_map(|event| match event {
        Event::Resumed { gap_ns, rail, .. } => Some((*gap_ns, *rail as usize)),
        _ => None,
    });
    let gaps: Vec<_> = gaps.collect();
    assert_eq!(gaps.len(), 1, "{events:?}");
    assert!(
        gaps[0].0 >= at - began && gaps[0].0 < 50_000_000,
        "{gaps:?}"
    );
    assert_ne!(gaps[0].1, rail);
    pair.a.on_rail(pair.now, rail, false);
    pair.settle();
    let events = told(&mut pair);
    let [Event::PathChanged { state, why, .. }] = events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((state, why), (PathState::Up, PathReason::Answered));
}

/// A silent path is suspect before it is given up; with nothing in flight, no gap is reported.
#[test]
fn a_silent_path_is_suspect_first() {
    let mut pair = Pair::new(2, false);
    told(&mut pair);
    pair.message(2, 40_000);
    let mut silent = None;
    let mut events = Vec::new();
    for _ in 0..4_000 {
        pair.step_through(&mut |from, rail, _| {
            if from == 0 {
                silent.get_or_insert(rail);
            }
            silent != Some(rail)
        });
        events.extend(told(&mut pair));
    }
    assert!(
        matches!(events[0], Event::PathSuspect { suspect: true, .. }),
        "{events:?}"
    );
    let down = |event: &&Event| {
        matches!(
            event,
            Event::PathChanged {
                state: PathState::Down,
                why: PathReason::Unanswered,
                ..
            }
        )
    };
    assert_eq!(events.iter().filter(down).count(), 1, "{events:?}");
}
