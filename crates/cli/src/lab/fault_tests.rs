//! Tests of the fault grammar.

use super::super::state::{Lab, Shape};
use super::super::target::{expand, parse_target, Target};
use super::*;

fn lab() -> Lab {
    Lab::new(
        std::path::Path::new("/x/ml"),
        "ml",
        Shape {
            hosts: 2,
            rails: 2,
            mtu: 1500,
            ipv6: false,
            direct: false,
        },
    )
}

fn order(text: &str) -> Result<Order, String> {
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    parse_order(&words)
}

fn set(text: &str) -> Effect {
    match order(text).unwrap().action {
        Action::Set(effect) => effect,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn targets() {
    let lab = lab();
    assert_eq!(
        parse_target(&lab, "1"),
        Ok(Target {
            host: None,
            rail: 1
        })
    );
    assert_eq!(
        parse_target(&lab, "rail0"),
        Ok(Target {
            host: None,
            rail: 0
        })
    );
    assert_eq!(
        parse_target(&lab, "h1:rail0"),
        Ok(Target {
            host: Some(1),
            rail: 0
        })
    );
    assert_eq!(
        parse_target(&lab, "ml-h1:1"),
        Ok(Target {
            host: Some(1),
            rail: 1
        })
    );
    for bad in ["", "2", "h0", "h2:0", "h0:", ":0", "rail-1"] {
        assert!(parse_target(&lab, bad).is_err(), "{bad}");
    }
}

#[test]
fn values_and_units() {
    assert_eq!(set("drop=0.01"), Effect::Drop(10_000));
    assert_eq!(set("drop=1%"), Effect::Drop(10_000));
    assert_eq!(set("corrupt=0.001"), Effect::Corrupt(1_000));
    assert_eq!(set("drop=1"), Effect::Drop(1_000_000));
    assert_eq!(set("mtu=1200"), Effect::Mtu(1_200));
    assert_eq!(set("rate=400mbit"), Effect::Rate(400_000_000));
    assert_eq!(set("rate=1.5gbit"), Effect::Rate(1_500_000_000));
    assert_eq!(set("delay=1ms"), Effect::Delay(1_000));
    assert_eq!(set("delay=250us"), Effect::Delay(250));
}

#[test]
fn modifiers() {
    let got = order("drop=5% in port=1000-2000").unwrap();
    assert_eq!((got.dir, got.ports), (Some(Dir::In), Some((1000, 2000))));
    assert_eq!(order("blackhole out").unwrap().dir, Some(Dir::Out));
    assert_eq!(order("blackhole port=7").unwrap().ports, Some((7, 7)));
    assert_eq!(order("drop=1% out for=2s").unwrap().for_s, Some(2));
    assert_eq!(order("up").unwrap().action, Action::Up);
    assert_eq!(order("clear in").unwrap().dir, Some(Dir::In));
    assert_eq!(order("offload=off").unwrap().action, Action::Offload(false));
}

#[test]
fn nonsense_is_refused() {
    let bad = [
        "",
        "drop",
        "drop=",
        "drop=0",
        "drop=-1",
        "drop=2",
        "drop=nan",
        "drop=inf",
        "down=1",
        "mtu=67",
        "mtu=65536",
        "mtu=1k",
        "rate=5",
        "rate=0mbit",
        "rate=1e99gbit",
        "delay=1h",
        "delay=ms",
        "blackhole sideways",
        "blackhole for=0s",
        "blackhole for=0.5s",
        "down for=1s",
        "clear for=1s",
        "down in",
        "ifdown port=1-2",
        "up out",
        "rate=1mbit port=1-2",
        "drop=1% port=9-8",
        "drop=1% port=70000",
        "clear port=1-2",
        "offload",
        "explode",
        "drop=1%%",
    ];
    for text in bad {
        assert!(order(text).is_err(), "{text}");
    }
}

#[test]
fn a_fault_on_a_rail_hits_each_packet_once() {
    let lab = lab();
    let dirs = |host, effect| -> Vec<(usize, Dir)> {
        let all = expand(
            &lab,
            Target { host, rail: 0 },
            effect,
            &order("up").unwrap(),
            None,
        );
        all.iter().map(|a| (a.host, a.dir)).collect()
    };
    assert_eq!(dirs(None, Effect::Drop(1)), [(0, Dir::In), (1, Dir::In)]);
    assert_eq!(
        dirs(Some(1), Effect::Drop(1)),
        [(1, Dir::In), (1, Dir::Out)]
    );
    assert_eq!(dirs(None, Effect::Delay(1)), [(0, Dir::Out), (1, Dir::Out)]);
    assert_eq!(dirs(None, Effect::Rate(1)).len(), 4);
    assert_eq!(dirs(None, Effect::Down), [(0, Dir::Out), (1, Dir::Out)]);
}

#[test]
fn lines_of_the_state_file_come_back() {
    for effect in [
        Effect::Down,
        Effect::IfDown,
        Effect::Drop(5),
        Effect::Blackhole,
        Effect::Corrupt(7),
        Effect::Mtu(1_200),
        Effect::Rate(9),
        Effect::Delay(11),
    ] {
        for (ports, span) in [(None, None), (Some((1, 65535)), Some((7, 1_795_529_428)))] {
            let fault = Active {
                host: 1,
                rail: 0,
                dir: Dir::In,
                effect,
                ports,
                span,
            };
            assert_eq!(Active::from_line(&fault.to_line()), Some(fault));
        }
    }
    for bad in [
        "",
        "0 0 in drop",
        "0 0 in drop 1 -",
        "0 0 in explode 1 - -",
        "0 0 in drop 1 - 9",
        "0 0 in drop 1 9-1 -",
        "x 0 in drop 1 - -",
    ] {
        assert_eq!(Active::from_line(bad), None, "{bad}");
    }
}

#[test]
fn the_help_has_a_right_example_of_every_fault() {
    let lines = HELP.lines();
    assert!(lines.clone().all(|line| line.len() <= 80));
    let examples = lines.filter_map(|l| l.strip_prefix("  marline lab fault "));
    let examples: Vec<Vec<String>> = examples
        .map(|line| line.split("  ").next().unwrap_or_default())
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect();
    for words in &examples {
        assert!(parse_order(&words[1..]).is_ok(), "{words:?}");
    }
    let refusal = parse_order(&["explode".to_owned()]).unwrap_err();
    let (_, all) = refusal.split_once("there are ").unwrap();
    for fault in all.split(", ") {
        let fault = fault.split('=').next().unwrap();
        let shown = |words: &Vec<String>| words[1].split('=').next() == Some(fault);
        assert!(examples.iter().any(shown), "{fault}");
    }
}
