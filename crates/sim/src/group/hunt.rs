//! Simplifies a failing run of groups as long as it still fails.

use super::run::run_group;
use super::setup::GroupSetup;

/// Most runs for shrinking a setup.
const TRIES_MAX: u32 = 200;

/// The smallest setup found that also fails (perhaps in another way).
pub fn shrink_group(setup: &GroupSetup) -> GroupSetup {
    let mut best = setup.clone();
    let mut tries = 0;
    loop {
        let smaller = candidates(&best).into_iter().find(|setup| {
            tries += 1;
            tries <= TRIES_MAX && run_group(setup, false).failure.is_some()
        });
        match smaller {
            Some(setup) => best = setup,
            None => return best,
        }
    }
}

/// Every setup that is one step simpler than `setup`.
fn candidates(setup: &GroupSetup) -> Vec<GroupSetup> {
    let mut list = Vec::new();
    let mut add = |differs: bool, change: &dyn Fn(&mut GroupSetup)| {
        let mut simpler = setup.clone();
        change(&mut simpler);
        list.extend(differs.then_some(simpler));
    };
    for at in 0..setup.groups.len() {
        add(setup.groups.len() > 1, &|s| drop(s.groups.remove(at)));
        let len = setup.groups[at].script.len();
        add(len > 1, &|s| s.groups[at].script.truncate(len / 2));
        add(len > 1, &|s| drop(s.groups[at].script.drain(..len / 2)));
        add(len > 1, &|s| s.groups[at].script.truncate(len - 1));
        add(setup.groups[at].depth > 1, &|s| s.groups[at].depth = 1);
        add(setup.groups[at].scheme.parity > 0, &|s| {
            s.groups[at].scheme.parity = 0
        });
        add(setup.groups[at].scheme.marks, &|s| {
            s.groups[at].scheme.marks = false
        });
    }
    for at in 0..setup.faults.len() {
        add(true, &|s| {
            s.faults.remove(at);
        });
    }
    let w = setup.packet_faults;
    add(w.drop > 0, &|s| s.packet_faults.drop = 0);
    add(w.duplicate > 0, &|s| s.packet_faults.duplicate = 0);
    add(w.reorder > 0, &|s| s.packet_faults.reorder = 0);
    add(w.corrupt > 0, &|s| s.packet_faults.corrupt = 0);
    add(w.forge > 0, &|s| s.packet_faults.forge = 0);
    add(w.strangers > 0, &|s| s.packet_faults.strangers = 0);
    add(setup.batch > 1, &|s| s.batch = 1);
    add(setup.gather_ns > 0, &|s| s.gather_ns = 0);
    add(setup.late.is_some(), &|s| s.late = None);
    add(setup.hard_of_hearing.is_some(), &|s| {
        s.hard_of_hearing = None
    });
    list
}
