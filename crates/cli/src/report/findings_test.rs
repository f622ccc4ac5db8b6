//! Findings on made-up facts.

use super::super::data::{Common, Protection};
use super::*;

const START: u64 = 1_764_166_226_000_000_000;
const SECOND: u64 = 1_000_000_000;

fn end(host: &str, rail: &str) -> End {
    End {
        host: host.to_owned(),
        rail: rail.to_owned(),
    }
}

fn rail(host: &str, name: &str) -> Rail {
    Rail {
        end: end(host, name),
        packets_sent: 1_000,
        packets_received: 1_000,
        ..Rail::default()
    }
}

fn job() -> Facts {
    Facts {
        from_unix_ns: START,
        to_unix_ns: START + 60 * SECOND,
        processes: 2,
        rails: vec![rail("n17", "rail1"), rail("n18", "rail1")],
        ..Facts::default()
    }
}

fn between() -> Outage {
    Outage {
        place: "rail1 between n17 and n18".to_owned(),
        ends: vec![end("n17", "rail1"), end("n18", "rail1")],
        times: 1,
        from_unix_ns: START + SECOND,
        to_unix_ns: Some(START + 3 * SECOND),
        packets_moved: 212,
        gap_ns: 3_000_000,
        ..Outage::default()
    }
}

/// Texts with the thing to look at.
fn reported(f: &Facts) -> Vec<String> {
    let both = |f: Finding| match f.look_at {
        Some(look_at) => format!("{}: {} => {look_at}", f.severity.name(), f.text),
        None => format!("{}: {}", f.severity.name(), f.text),
    };
    findings(f).into_iter().map(both).collect()
}

#[test]
fn a_clean_job_says_so() {
    assert_eq!(reported(&job()), ["note: no rail, path or peer has failed"]);
    let mut lossy = job();
    lossy.rails[0].lost = 5;
    assert_eq!(
        reported(&lossy),
        [
            "note: no rail, path or peer has failed",
            "note: 5 packets were lost (0.250 % of all sent): from n17:rail1 (5)"
        ]
    );
}

#[test]
fn the_longest_wait_of_messages_is_named() {
    let mut f = job();
    f.message_wait_max_ns = 3_200_000;
    let class = |up_to_ns, eager, rendezvous| Wait {
        up_to_ns,
        eager,
        rendezvous,
    };
    f.waits = vec![
        class(Some(8_192), 98, 0),
        class(Some(16_384), 0, 1),
        class(None, 1, 0),
    ];
    let said = "the longest wait of any message was 3.2 ms";
    assert_eq!(
        reported(&f)[1..],
        [format!("note: {said}; 99 of 100 waited 16 us at most")]
    );
    f.waits[2].rendezvous = 1;
    assert_eq!(reported(&f)[1..], [format!("note: {said}")]);
}

#[test]
fn an_outage_names_rails_hosts_times_and_the_longest_wait() {
    let mut f = job();
    f.outages = vec![between()];
    let at = |s| clock(START + s * SECOND, START);
    let [reported] = &reported(&f)[..] else {
        panic!("one finding")
    };
    assert_eq!(
        *reported,
        format!(
            "fault: rail1 between n17 and n18 was down from {} to {} (2.0 s); 212 packets moved \
             to other paths; nothing was delivered for 3.0 ms at most => n17:rail1 and n18:rail1: \
             their cables, their switch ports and the switch between them",
            at(1),
            at(3)
        )
    );
    (f.outages[0].to_unix_ns, f.outages[0].corrupt) = (None, true);
    let text = &super::findings(&f)[0].text;
    assert!(
        text.contains("given up for damaged packets from ") && text.contains(" to the end; "),
        "{text}"
    );
}

#[test]
fn many_outages_are_reported_by_place() {
    let mut f = job();
    f.outages = (0..=OUTAGES_MAX).map(|_| between()).collect();
    f.outages_by_place = vec![Outage {
        times: 9,
        ..between()
    }];
    let reported = reported(&f);
    assert!(
        reported.len() == 1 && reported[0].contains("was down 9 times from "),
        "{reported:?}"
    );
    assert!(reported[0].contains("(within 2.0 s)"), "{reported:?}");
    f.outages_by_place = (0..PLACES_MAX + 2).map(|_| between()).collect();
    let reported = super::findings(&f);
    assert!(
        reported.last().unwrap().text.contains("2 more places"),
        "{reported:?}"
    );
}

#[test]
fn an_outage_of_many_rails_names_some() {
    let mut f = job();
    let hosts = ["a", "b", "c", "d", "e", "f"];
    f.outages = vec![Outage {
        place: "rail1 on 6 hosts".to_owned(),
        ends: hosts.map(|host| end(host, "rail1")).into(),
        ..between()
    }];
    let text = &super::findings(&f)[0].text;
    assert!(
        text.starts_with("rail1 on 6 hosts (a:rail1, b:rail1, c:rail1, d:rail1 and 2 more) was"),
        "{text}"
    );
}

#[test]
fn the_common_factor_of_bad_paths_is_named() {
    let mut f = job();
    let mut said = |paths: usize, shared: usize, place: Place| {
        f.given_up = Paths {
            paths,
            common: Some(Common {
                place,
                paths: shared,
            }),
        };
        reported(&f).remove(0)
    };
    let h3 = || end("h3", "rail0");
    let text = said(5, 5, Place::End(h3()));
    assert!(
        text.starts_with("fault: all 5 paths given up share h3:rail0 => h3:rail0: its cable, its"),
        "{text}"
    );
    let text = said(2, 2, Place::End(h3()));
    assert!(text.starts_with("fault: both paths given up share h3:rail0 =>"));
    let text = said(5, 5, Place::End(end("h3", "tcp:rail0")));
    assert!(text.contains("h3:tcp:rail0: its cable") && text.contains("ip -s link show rail0`"));
    let text = said(6, 5, Place::End(h3()));
    assert!(
        text.starts_with("fault: 5 of 6 paths given up share h3:rail0 =>"),
        "{text}"
    );
    let text = said(1, 1, Place::End(h3()));
    assert!(
        text.contains("the only path given up ends at h3:rail0 "),
        "{text}"
    );
    let text = said(1, 1, Place::Between(h3(), end("h4", "rail0")));
    assert!(
        text.contains("the only path given up is h3:rail0 to h4:rail0"),
        "{text}"
    );
    assert!(said(4, 4, Place::Host("h3".to_owned())).contains("share host h3"));
    assert!(said(3, 3, Place::Rail("rail1".to_owned())).contains("the switch of rail1"));
}

#[test]
fn a_rail_that_its_system_reported_down_is_named_as_such() {
    let mut f = job();
    f.rails[1].downs = 1;
    f.given_up = Paths {
        paths: 1,
        common: Some(Common {
            place: Place::End(end("n18", "rail1")),
            paths: 1,
        }),
    };
    let text = reported(&f).remove(0);
    assert!(
        text.contains("n18:rail1, which its own system reported as down"),
        "{text}"
    );
}

#[test]
fn damage_names_rails_by_their_number_of_packets() {
    let mut f = job();
    (f.rails[0].corrupt, f.rails[1].corrupt) = (13, 100);
    let text = reported(&f).remove(0);
    assert!(
        text.contains(
            "113 packets arrived damaged (5.650 % of all received): at n18:rail1 (100), n17:rail1 \
             (13)"
        ),
        "{text}"
    );
    assert!(text.contains("=> n18:rail1: its cable"), "{text}");
}

#[test]
fn a_dead_peer_comes_first_with_its_reason() {
    let mut f = job();
    f.outages = vec![between()];
    let peer = |reason: &'static str, follows| Dead {
        name: "rank 3 (10.0.0.3:7)".to_owned(),
        host: Some("n18".to_owned()),
        reason,
        why: "it answered on no rail".to_owned(),
        named_by: 2,
        from_unix_ns: START + SECOND,
        follows,
        ..Dead::default()
    };
    f.dead_peers = vec![peer("silent", false), peer("process-gone", true)];
    let said = reported(&f);
    let at = clock(START + SECOND, START);
    let begins = format!(
        "fault: rank 3 (10.0.0.3:7) on n18 was given up by 2 processes at {at}: it answered on no \
         rail => host n18: its power"
    );
    assert!(said[0].starts_with(&begins), "{said:?}");
    assert!(said[1].ends_with("which most likely ended it"), "{said:?}");
    for reason in marline_engine::stats::events::Reason::ALL {
        f.dead_peers = vec![peer(reason.name(), false)];
        assert!(reported(&f)[0].contains(" => "), "{reason:?}");
    }
}

#[test]
fn the_host_that_others_lost_is_the_one_to_look_at() {
    let peer = |host: &str| Dead {
        host: Some(host.to_owned()),
        reason: "silent",
        ..Dead::default()
    };
    let f = Facts {
        dead_peers: vec![peer("n17"), peer("n18")],
        cut_off: Some("n18".to_owned()),
        ..job()
    };
    let said = reported(&f);
    let first = "fault: all processes that fell silent were on n18, or silent to n18 only => \
                 host n18: its power";
    assert!(said[0].starts_with(first), "{said:?}");
    assert_eq!(
        said.iter().filter(|text| text.contains(" => ")).count(),
        1,
        "{said:?}"
    );
}

#[test]
fn disabled_protection_and_counters_of_rails_are_warnings() {
    let mut f = job();
    f.protection = Protection {
        without_reliability: 1,
        without_checksums: 2,
        some_checksums: 2,
        faults: 1,
        ..Protection::default()
    };
    f.left_behind = vec!["rank 1 on n18".to_owned()];
    let r = &mut f.rails[0];
    (r.receiver_drops, r.shrinks, r.wrong_version, r.forged) = (1, 2, 3, 4);
    f.events_missing = 7;
    let reported = reported(&f);
    let count = |word: &str| {
        reported
            .iter()
            .filter(|text| text.starts_with(word))
            .count()
    };
    assert_eq!(
        (count("warning: "), count("note: ")),
        (9, 1),
        "{reported:?}"
    );
    assert!(
        reported[0].contains("FI_MARLINE_RELIABILITY=off in 1 of 2 processes"),
        "{reported:?}"
    );
}
