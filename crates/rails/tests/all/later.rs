//! Interfaces that appear, disappear and change names under a watch.

use crate::common;

use common::{ip, join, next_state, wait_readable, Namespace};
use marline_rails::{choose_interfaces, InterfaceChange, InterfaceWatch, RailFault};

/// Two rails wait for any interface of a pattern and each takes one that appears; the standby TCP
/// rail of a rail follows it.
#[test]
fn interfaces_of_a_pattern_are_taken_as_they_come() {
    let (a, b) = (Namespace::enter_new(), Namespace::enter_new());
    a.enter();
    let mut choices = choose_interfaces(&["later:rail*".to_owned()]).unwrap();
    assert_eq!(choices.len(), 2);
    choices.insert(1, choices[0].clone()); // as TCP
    let mut watch = InterfaceWatch::open(&choices).unwrap();
    let next = |watch: &mut InterfaceWatch| loop {
        match watch.poll() {
            Some((rail, InterfaceChange::Address(other))) => break (rail, other),
            Some(_) => {}
            None => wait_readable(watch.fd()),
        }
    };
    let comes = |watch: &mut InterfaceWatch, rail: usize, name: &str| {
        let (told, other) = next(watch);
        assert_eq!((told, other.name.as_str()), (rail, name));
        watch.follow(rail, &other);
        while !watch.is_up(rail) {
            let _ = watch.poll();
        }
    };
    join(&a, &b, "rail7", 1);
    a.enter();
    comes(&mut watch, 0, "rail7");
    comes(&mut watch, 1, "rail7");
    join(&a, &b, "other0", 2);
    join(&a, &b, "rail3", 3);
    a.enter();
    comes(&mut watch, 2, "rail3");
    // The interface is gone for good; its replacement may have another name.
    ip("link del rail7");
    join(&a, &b, "rail9", 4);
    a.enter();
    comes(&mut watch, 0, "rail9");
    comes(&mut watch, 1, "rail9");
}

#[test]
fn an_interface_that_is_renamed_keeps_its_rail() {
    let (a, b) = (Namespace::enter_new(), Namespace::enter_new());
    join(&a, &b, "rail0", 1);
    a.enter();
    let choice = choose_interfaces(&["rail0".to_owned()]).unwrap();
    let mut watch = InterfaceWatch::open(&choice).unwrap();
    assert_eq!(watch.poll(), None);
    ip("link set rail0 down");
    while next_state(&mut watch) != RailFault::Down(libc::ENETDOWN) {}
    ip("link set rail0 name wan7");
    let renamed = loop {
        match watch.poll() {
            Some(change) => break change,
            None => wait_readable(watch.fd()),
        }
    };
    assert_eq!(renamed, (0, InterfaceChange::Name("wan7".to_owned())));
    ip("link set wan7 up");
    assert_eq!(next_state(&mut watch), RailFault::Up);
    ip("link add rail0 type veth peer name other0");
    ip("link del wan7");
    while watch.is_up(0) {
        wait_readable(watch.fd());
        while let Some((_, change)) = watch.poll() {
            assert!(matches!(change, InterfaceChange::State(RailFault::Down(_))));
        }
    }
}
