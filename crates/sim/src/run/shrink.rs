//! Simplifies a failing run as long as it still fails.

use crate::machine::connections::Evictions;
use crate::run::seed::run_setup;
use crate::setup::choices::{Setup, Topology, Trouble};

/// Most runs for shrinking, which should cost less time than reading a longer report.
const TRIES_MAX: u32 = 300;

/// The smallest setup found that also fails (perhaps differently).
pub fn shrink(setup: &Setup) -> Setup {
    let mut best = setup.clone();
    let mut tries = 0;
    loop {
        let smaller = candidates(&best).into_iter().find(|s| {
            tries += 1;
            tries <= TRIES_MAX && run_setup(s, false).failure.is_some()
        });
        match smaller {
            Some(setup) => best = setup,
            None => return best,
        }
    }
}

/// Every setup that is one step simpler than `setup`.
fn candidates(setup: &Setup) -> Vec<Setup> {
    let mut list = Vec::new();
    let mut add = |change: &dyn Fn(&mut Setup)| {
        let mut simpler = setup.clone();
        change(&mut simpler);
        list.push(simpler);
    };
    for i in 0..setup.faults.len() {
        add(&|s| {
            s.faults.remove(i);
        });
    }
    let w = setup.packet_faults;
    let levels = [
        w.drop,
        w.duplicate,
        w.reorder,
        w.corrupt_head,
        w.corrupt_payload,
        w.truncate,
        w.batch_drop,
        w.jitter_ns as u32,
        w.forge,
        w.strangers,
    ];
    for (i, _) in levels.iter().enumerate().filter(|(_, &ppm)| ppm > 0) {
        add(&|s| {
            let w = &mut s.packet_faults;
            match i {
                0 => w.drop = 0,
                1 => w.duplicate = 0,
                2 => w.reorder = 0,
                3 => w.corrupt_head = 0,
                4 => w.corrupt_payload = 0,
                5 => w.truncate = 0,
                6 => w.batch_drop = 0,
                7 => w.jitter_ns = 0,
                8 => w.forge = 0,
                _ => w.strangers = 0,
            }
        });
    }
    shorter(setup, &mut add);
    if setup.rails > 1 {
        add(&drop_last_rail);
    }
    if setup.ops > 1 {
        add(&|s| s.ops /= 2);
        add(&|s| s.ops -= 1);
    }
    if setup.size_max > 100 {
        add(&|s| s.size_max /= 4);
    }
    if setup.topology != Topology::Planes {
        add(&|s| s.topology = Topology::Planes);
    }
    plainer(setup, &mut add);
    if setup.faults.is_empty() && setup.hosts > 2 {
        add(&|s| s.hosts -= 1);
    }
    list
}

/// Adds setups without one of the features of rails and processes.
fn plainer(setup: &Setup, add: &mut impl FnMut(&dyn Fn(&mut Setup))) {
    if setup.verbs.iter().any(Option::is_some) {
        add(&|s| {
            s.verbs.fill(None);
            s.node.read_rails = 0;
        });
    }
    if setup.node.read_rails != 0 {
        add(&|s| s.node.read_rails = 0);
    }
    if setup.evictions != Evictions::default() {
        add(&|s| s.evictions = Evictions::default());
        add(&|s| s.evictions.datagrams_first = 0);
    }
    if setup.node.native_rails != 0 {
        add(&|s| s.node.native_rails = 0);
    }
    if setup.behind.is_some() {
        add(&|s| s.behind = None);
    }
    if setup.connected.contains(&true) {
        add(&|s| s.connected.fill(false));
    }
    if setup.streams.contains(&true) {
        add(&|s| s.streams.fill(false));
    }
    if setup.writes.contains(&true) {
        add(&|s| s.writes.fill(false));
    }
    if setup.direct {
        add(&|s| s.direct = false);
        add(&|s| s.direct_again = false);
        add(&|s| s.direct_shuffled = false);
    }
    if setup.node.rail_algorithm.iter().any(Option::is_some) {
        add(&|s| s.node.rail_algorithm.fill(None));
    }
    if setup.bye {
        add(&|s| s.bye = false);
    }
}

/// Removes the last rail and its faults.
fn drop_last_rail(setup: &mut Setup) {
    setup.rails -= 1;
    let left = setup.rails;
    setup.datagram_max.truncate(left);
    setup.streams.truncate(left);
    setup.connected.truncate(left);
    setup.verbs.truncate(left);
    setup.writes.truncate(left);
    setup.latency_ns.truncate(left);
    setup.rate.truncate(left);
    setup
        .faults
        .retain(|f| f.what.rail().is_none_or(|r| r < left));
    // The simpler setup may lack the only rail that stays in place.
    setup
        .faults
        .retain(|f| !matches!(f.what, Trouble::Move { .. }));
    setup.awaited.clear();
    setup.behind = setup.behind.filter(|&r| r < left);
}

/// Adds setups with fewer rounds, or fewer faults in them.
fn shorter(setup: &Setup, add: &mut impl FnMut(&dyn Fn(&mut Setup))) {
    if setup.packets_min == 0 {
        return;
    }
    add(&|s| s.packets_min = 0);
    add(&|s| s.packets_min /= 2);
    // Without faults in all rounds but the first, or in one of the next few rounds.
    for calm in [!1, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 1 << 5] {
        if setup.calm_rounds & calm != calm {
            add(&|s| s.calm_rounds |= calm);
        }
    }
}
