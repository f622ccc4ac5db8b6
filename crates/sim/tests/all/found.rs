//! Bugs that the simulator found, each with the seed that showed it first. Later changes of the
//! simulator move schedules, so that a seed may no longer meet its bug. A bug that two nodes can
//! show is tested in `crates/proto/tests` instead (`regressions.rs` first of all), where the test
//! fails without the fix.

use marline_sim::{run_setup, Fault, PacketFaults, Profile, Setup, Topology, Trouble, Work};

fn clean(seed: u64, profile: Profile) {
    let mut setup = Setup::draw(seed, profile, 0, 0);
    // There were none when these were found.
    setup.streams.fill(false);
    setup.writes.fill(false);
    setup.behind = None;
    let outcome = run_setup(&setup, false);
    assert!(
        outcome.failure.is_none(),
        "{}",
        outcome.failure.unwrap_or_default()
    );
}

/// A path comparison had its deadline in the past for 9 ms: timers span.
#[test]
fn comparisons_do_not_spin() {
    clean(8, Profile::Swarm);
}

/// The second round of a seed had a near rail, as the first, and one direction of it was cut for
/// longer than peers wait, the other direction of the other rail at the same time: a connection
/// carries nothing then, and the peer was rightly called dead.
#[test]
fn a_round_with_connections_cuts_no_direction_for_long() {
    let mut setup = Setup::draw(248_244_009_627_034, Profile::Swarm, 0, 0);
    setup.packets_min = 3_000;
    let outcome = run_setup(&setup, false);
    assert_eq!(outcome.failure, None);
}

/// Repairs of one exact period met the full queue of a slow port every time, for longer than the
/// peer timeout, while another sender's packets, of a period too, kept it full: a live peer was
/// called dead.
#[test]
fn repairs_do_not_keep_step_with_a_full_queue() {
    clean(21_279, Profile::Rails);
}

/// A rail that flapped often takes over before its damping ends, when the other falls silent:
/// the first repair goes there.
#[test]
fn a_damped_rail_takes_over_when_no_other_is_healthy() {
    let quiet = worked_ns(false);
    let cut = worked_ns(true);
    // The damping of seven falls is 128 ms; a repair timer at its slowest is 10 ms.
    assert!(cut < quiet + 60_000_000, "{cut} ns, not cut {quiet} ns");
}

/// Ping-pong for about 1.5 s while rail 0 falls seven times; then rail 1, too, if `cut`.
fn worked_ns(cut: bool) -> u64 {
    const MS: u64 = 1_000_000;
    let mut setup = Setup::plain(1, 2, 2);
    setup.topology = Topology::Planes;
    setup.packet_faults = PacketFaults::default();
    setup.work = Work::PingPong;
    (setup.ops, setup.size_max, setup.latency_ns) = (52_000, 64, vec![100_000, 300_000]);
    let hole = |rail, from_ms, to_ms| {
        [true, false].map(|outgoing| Fault {
            from_ns: from_ms * MS,
            to_ns: to_ms * MS,
            what: Trouble::Blackhole {
                host: 0,
                rail,
                outgoing,
            },
        })
    };
    setup.faults = [15, 50, 100, 170, 280, 480, 960]
        .into_iter()
        .flat_map(|at| hole(0, at, at + 20))
        .chain(hole(1, if cut { 985 } else { 1_999 }, 2_000))
        .collect();
    setup.faults_end_ns = 2_000 * MS;
    let outcome = run_setup(&setup, false);
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    outcome.worked_ns
}

/// Not a bug but a rule of the check that was too strict: of several messages on their way into a
/// multi-receive one is lost with its sender, and another one ends it.
#[test]
fn a_message_may_end_a_multi_receive_that_lost_another() {
    for seed in [3_153, 50_344, 20_041] {
        clean_for_long(seed);
    }
}

fn clean_for_long(seed: u64) {
    let mut setup = Setup::draw(seed, Profile::Swarm, 0, 0);
    setup.packets_min = 5_000;
    let outcome = run_setup(&setup, false);
    assert_eq!(outcome.failure, None);
}

/// Not a bug either: a flood of packets for the process that died before this one here was taken
/// for timers that spin.
#[test]
fn packets_for_the_dead_are_no_spinning() {
    clean_for_long(51_622);
}

/// Nor this: the clock of an endpoint that waits for its peers within a close runs ahead of theirs,
/// and it called one dead that lives.
#[test]
fn whom_a_closing_endpoint_calls_dead_may_live() {
    clean_for_long(11_709);
}

/// Nor this: a process that was stopped for as long as its peers wait, to the last moment of a
/// round, was given up when the next one had begun, in which nobody may be.
#[test]
fn who_was_away_to_the_end_of_a_round_is_given_up_after_it() {
    clean_for_long(13_201_162);
}

/// Nor this: two whose only rails moved at once lose each other, and what one had sent was never
/// acknowledged; the check came before they gave each other up.
#[test]
fn what_a_stranded_peer_leaves_unanswered_ends_with_it() {
    clean(138_317_450_226_755, Profile::Verbs);
}

/// A multi-receive that was taken back between two polls lost what its endpoint had sent to itself
/// since the first: matched, but not copied yet.
#[test]
fn a_multi_receive_taken_back_keeps_own_messages() {
    clean(186, Profile::Swarm);
    clean_for_long(20_076);
}

/// On a path with a round trip beyond 25 ms, the next trial of one that corrupted panicked: the
/// shortest interval was longer than the longest.
#[test]
fn trials_of_a_slow_path_do_not_panic() {
    clean_for_long(325_754);
}

/// The silence of a peer that had died counted from the beginning whenever nothing but a probe of
/// packet sizes was under way, and that was lost.
#[test]
fn silence_counts_from_the_last_word() {
    clean_for_long(327_173);
}

/// Not a bug of the protocol but one of the simulated rails: a process had the keys of the one that
/// died before it on its host, whose peers went on writing to that.
#[test]
fn writes_to_the_dead_do_not_reach_the_living() {
    let outcome = run_setup(&Setup::draw(200_852, Profile::Swarm, 0, 0), false);
    assert_eq!(outcome.failure, None);
}

/// Nor this: what a process sent at the very moment when it was on the processor again left before
/// what had waited meanwhile.
#[test]
fn what_was_held_leaves_first() {
    clean_for_long(620_952);
}

/// A packet whose ack was damaged, and of which later acks did not speak, stays until it is 10 ms
/// old: 8,000 others had come and gone behind it. (The simulator called that too many.)
#[test]
fn one_packet_may_wait_while_thousands_pass() {
    clean_for_long(7_001_878);
}

/// A process that was stopped for longer than its peers wait answered reads of one that had given
/// it up meanwhile. (The simulator called that a leak.)
#[test]
fn one_who_was_given_up_may_answer_for_a_while() {
    clean_for_long(7_057_512);
}

/// A packet came 0.3 s after its sender's death, which was found a whole timeout later. (The
/// simulator called that too late; the second in a later
/// round, with other packet faults.)
#[test]
fn a_late_packet_of_a_dead_peer_is_a_sign_of_life() {
    clean_for_long(9_524_414);
    clean_for_long(9_672_433);
}

/// A lost packet of 64 KB held hundreds of short messages, and its repairs queued each of them
/// again and again: 9,678 frames of 245 sends.
#[test]
fn what_a_large_packet_held_is_queued_again_once() {
    clean_for_long(9_751_755);
}

/// Two peers wrote to the same bytes of a window, and one poll took both: the simulator looked for
/// the first one's bytes when the second one's were there.
#[test]
fn two_writes_to_the_same_bytes_may_come_by_one_poll() {
    clean_for_long(19_011_451);
    clean_for_long(19_016_395);
}

/// One poll took a peer's write and then let another peer's in at the same place, which was
/// poisoned for it, since its rail had no memory of its own left. The simulator looked for the
/// first one's bytes after that, and asked who else writes there as it had been before that poll:
/// it called them lost.
#[test]
fn a_write_counts_that_another_let_in_by_the_same_poll_spoils() {
    let setup = Setup::draw(36_005_467, Profile::Verbs, 0, 0);
    let failure = run_setup(&setup, false).failure.unwrap_or_default();
    assert!(failure.is_empty(), "{failure}");
}

/// Each of many acks that were taken at once brought a deadline forward, and all of them were kept.
#[test]
fn deadlines_that_come_ever_sooner_are_forgotten() {
    let mut setup = Setup::draw(109_256_671_410_974, Profile::Swarm, 0, 0);
    setup.work = Work::Storm;
    let failure = run_setup(&setup, false).failure.unwrap_or_default();
    assert!(failure.is_empty(), "{failure}");
}

/// The network carried nothing for a while, and a connection held the packet that tells of a write,
/// but not the write, which the simulator lost. The message had no sum that would have shown it.
#[test]
fn a_connection_holds_writes_as_it_holds_packets() {
    let mut setup = Setup::draw(53_366_141_251_439, Profile::Verbs, 0, 0);
    setup.evictions = Default::default(); // drawn since later
    let failure = run_setup(&setup, false).failure.unwrap_or_default();
    assert!(failure.is_empty(), "{failure}");
}

/// A sender took its peer for dead and ended a remote write with an error; the peer, which had it
/// whole, did it later. The simulator had forgotten its bytes by then.
#[test]
fn a_call_that_was_given_up_may_still_be_done() {
    let setup = Setup::draw(66_472_183_470_811, Profile::Swarm, 0, 0);
    let failure = run_setup(&setup, false).failure.unwrap_or_default();
    assert!(failure.is_empty(), "{failure}");
}

/// A part of an atomic operation was refused, and the peer died before it answered the other:
/// the operation ends with the refusal. The simulator asked for the other answer as well.
#[test]
fn a_refusal_may_be_the_last_answer_of_a_peer() {
    let setup = Setup::draw(205_159_604_810_908, Profile::Swarm, 0, 0);
    let failure = run_setup(&setup, false).failure.unwrap_or_default();
    assert!(failure.is_empty(), "{failure}");
}

/// Two cuts at once left the crossed ways, and a probe each 20 ms was all that the peer said: each
/// time it counted as back from an absence, within 21 ms of which no repair was due, so that there
/// was none on a path that lost all, and the peer was called dead after a second.
#[test]
fn a_peer_that_speaks_now_and_then_delays_no_repair_for_ever() {
    clean(98_681_890_898_004, Profile::Swarm);
}

/// The only rails of two hosts moved at once in an early round, which nobody follows, and a later
/// round had no such fault: the simulator asked why they did not speak.
#[test]
fn only_rails_that_moved_at_once_part_for_good() {
    let mut setup = Setup::draw(162_139_966_410_586, Profile::Swarm, 0, 0);
    setup.packets_min = 3_000;
    let failure = run_setup(&setup, false).failure.unwrap_or_default();
    assert!(failure.is_empty(), "{failure}");
}

/// A killed process whose host answers nothing was sent one lone frame again by each of sixteen
/// paths, all on the best of them, more often than may wait there (docs/design/loss.md).
#[test]
fn a_silent_peer_is_not_sent_thousands_of_copies() {
    let mut setup = Setup::draw(220_106_187_017_154, Profile::Swarm, 0, 0);
    setup.work = Work::Collective;
    let failure = run_setup(&setup, false).failure.unwrap_or_default();
    assert!(failure.is_empty(), "{failure}");
}

/// Nothing was known to carry, and a path whose peer might have been off its processor was asked
/// each 100 ms only, a tenth of the time after which the peer counts as dead: a hole of 900 ms was
/// over for 30 ms when the peer was called dead, and it had not been asked since.
#[test]
fn a_peer_of_whom_nothing_is_heard_is_asked_until_it_counts_as_dead() {
    clean(31_007_475, Profile::Swarm);
}

/// The engine reported how a refused call would have been sent; the model of shared calls took that
/// for the next call.
#[test]
fn a_refused_call_says_nothing_of_the_next() {
    clean(703_455, Profile::Rails);
}
