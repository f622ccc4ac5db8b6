//! InfiniBand rails: connections that break during writes, ends that learn of it late, writes that
//! land late, partially or never, and idle eviction of connections.

use marline_proto::Pipeline;
use marline_sim::{
    run_setup, Evictions, FalseReport, Outcome, PacketFaults, Setup, Trouble, Verbs, Work,
};

const MS: u64 = 1_000_000;

/// Two hosts exchange long messages over these rails, whose connections break.
fn setup(seed: u64, kinds: &[Verbs]) -> Setup {
    let mut setup = Setup::plain(seed, 2, kinds.len());
    for (rail, &kind) in kinds.iter().enumerate() {
        setup.set_verbs(rail, kind);
    }
    (setup.ops, setup.size_max, setup.pause_ns) = (200, 300_000, 500);
    (setup.node.eager_max, setup.node.write_min) = (4_096, 8_192);
    setup.registered_max = usize::MAX;
    setup.socket_bytes = 4 << 20;
    setup.packet_faults = PacketFaults {
        breaks: 5_000,
        drop: 2_000,
        ..PacketFaults::default()
    };
    setup.faults_end_ns = 200 * MS;
    setup
}

fn clean(setup: &Setup) -> Outcome {
    let outcome = run_setup(setup, false);
    assert_eq!(outcome.failure, None);
    outcome
}

#[test]
fn writes_of_broken_connections_arrive_by_others() {
    use Verbs::{Rc, Uc, Ud};
    for kinds in [&[Rc][..], &[Uc], &[Rc, Rc], &[Uc, Uc], &[Rc, Ud], &[Uc, Rc]] {
        let (mut writes, mut late) = (0, 0);
        for seed in 0..8 {
            let outcome = clean(&setup(seed, kinds));
            writes += outcome.net.writes;
            late += outcome.net.writes_lost + outcome.net.writes_refused;
        }
        assert!(
            writes > 100 && late > 0,
            "{kinds:?}: {writes} writes, {late} late"
        );
    }
}

#[test]
fn datagrams_write_nothing() {
    let outcome = clean(&setup(1, &[Verbs::Ud, Verbs::Ud]));
    assert_eq!(outcome.net.writes, 0);
    assert!(outcome.net.dropped > 0);
}

/// On connections that lose single writes, the packet that reports a write does not prove it.
#[test]
fn writes_that_never_land_are_sent_again() {
    let mut setup = setup(3, &[Verbs::Uc, Verbs::Uc]);
    for host in 0..2 {
        let what = Trouble::Lies {
            host,
            rail: 0,
            how: FalseReport::Never,
        };
        setup.faults.push(marline_sim::Fault {
            from_ns: 0,
            to_ns: 200 * MS,
            what,
        });
    }
    let outcome = clean(&setup);
    assert!(outcome.net.writes_lost > 0, "{:?}", outcome.net);
}

/// Two hosts with unreliable connections that lose writes, without sums.
fn unreliable(seed: u64, drop: u32) -> Setup {
    let mut setup = setup(seed, &[Verbs::Uc]);
    setup.packet_faults = PacketFaults {
        drop,
        ..PacketFaults::default()
    };
    setup.node.summed = (1, 0);
    setup
}

/// Without sums only the immediates reveal missing bytes.
#[test]
fn a_packet_counts_only_after_its_writes() {
    let mut doubted = 0;
    for seed in 0..8 {
        let mut setup = unreliable(seed, 20_000);
        (setup.packet_faults.reorder, setup.packet_faults.reorder_ns) = (20_000, 3 * MS);
        setup.packet_faults.duplicate = 20_000;
        doubted += clean(&setup).net.doubted;
    }
    assert!(doubted > 0);
}

/// A stuck connection is replaced, and its writes then have a single part.
#[test]
fn stuck_connections_are_made_anew() {
    let (mut stuck, mut remade) = (0, 0);
    for seed in 0..8 {
        let mut setup = unreliable(seed, 5_000);
        setup.sticks = true;
        let net = clean(&setup).net;
        (stuck, remade) = (stuck + net.stuck, remade + net.remade);
    }
    assert!(stuck > 0 && remade > 0, "{stuck} {remade}");
}

/// The same with packets only, which have a single part after a replacement.
#[test]
fn connections_stuck_by_packets_are_made_anew() {
    let (mut stuck, mut remade, mut packets) = (0, 0, 0);
    for seed in 0..8 {
        let mut setup = unreliable(seed, 5_000);
        setup.sticks = true;
        setup.datagram_max = vec![8_192];
        setup.node.eager_max = 64 << 10;
        setup.node.write_min = u64::MAX as _;
        let net = clean(&setup).net;
        assert_eq!(net.writes, 0);
        (stuck, remade) = (stuck + net.stuck, remade + net.remade);
        packets += net.packets;
    }
    assert!(stuck > 0 && remade > 0, "{stuck} {remade} {packets}");
    // Each of two rails shrinks its packets once, not repeatedly.
    assert!(remade < 100, "{stuck} {remade} {packets}");
}

/// Native lossless rails carry everything, with few acks.
#[test]
fn nothing_is_lost_natively_where_nothing_fails() {
    for kinds in [
        &[Verbs::Rc][..],
        &[Verbs::Rc, Verbs::Rc],
        &[Verbs::Ud],
        &[Verbs::Uc],
    ] {
        for seed in 0..8 {
            let mut setup = setup(seed, kinds);
            setup.packet_faults = PacketFaults::default();
            setup.queue_ns = 50 * MS; // nothing is dropped for lack of room either
            setup.node.native_rails = u32::MAX;
            // A receive that fails during its write breaks the connection.
            setup.may_die = clean(&dying(&setup)).net.writes_refused > 0;
            clean(&setup);
        }
    }
}

/// The same setup; connections to peers may end.
fn dying(setup: &Setup) -> Setup {
    Setup {
        may_die: true,
        ..setup.clone()
    }
}

/// If connections break, operations end with an error or nothing is lost.
#[test]
fn nothing_is_lost_silently_where_native_connections_break() {
    let mut died = 0;
    for seed in 0..20 {
        let mut setup = setup(seed, &[Verbs::Rc, Verbs::Ud]);
        setup.node.native_rails = u32::MAX;
        setup.may_die = true;
        died += usize::from(clean(&setup).net.broken > 0);
    }
    assert!(died > 0);
}

/// Three hosts whose connections are evicted and re-established continuously, with breaks and
/// losses, by connections only or by datagrams first.
#[test]
fn connections_are_evicted_and_re_established_under_traffic() {
    use Verbs::{Rc, Uc};
    let (mut evicted, mut reconnected, mut held) = (0, 0, 0);
    for kinds in [&[Rc][..], &[Uc], &[Rc, Uc]] {
        for datagrams_first in [0, 3] {
            for seed in 0..6 {
                let mut setup = evicted_links(seed, kinds);
                setup.evictions.datagrams_first = datagrams_first;
                let net = clean(&setup).net;
                (evicted, reconnected) = (evicted + net.evicted, reconnected + net.reconnected);
                held += net.held;
            }
        }
    }
    assert!(
        evicted > 1_000 && reconnected > 1_000 && held > 1_000,
        "{evicted} {reconnected} {held}"
    );
}

/// Idle eviction loses nothing: native rails may use it.
#[test]
fn idle_eviction_loses_nothing_natively() {
    for kinds in [&[Verbs::Rc][..], &[Verbs::Rc, Verbs::Rc]] {
        let mut evicted = 0;
        for seed in 0..8 {
            let mut setup = natively_evicted(seed, kinds);
            // A receive that fails during its write breaks the connection.
            setup.may_die = clean(&dying(&setup)).net.writes_refused > 0;
            evicted += clean(&setup).net.evicted;
        }
        assert!(evicted > 100, "{evicted}");
    }
}

/// Losses can only come from idle eviction, and end the connection to the peer.
fn natively_evicted(seed: u64, kinds: &[Verbs]) -> Setup {
    let mut setup = evicted_links(seed, kinds);
    setup.packet_faults = PacketFaults::default();
    setup.node.native_rails = u32::MAX;
    setup
}

/// Evicting a connection with work in progress ends the connection to the peer, as a break does.
#[cfg(feature = "mutation")]
#[test]
fn eviction_with_work_in_progress_is_noticed() {
    std::panic::set_hook(Box::new(|_| {}));
    let noticed = (0..100).find(|&seed| {
        let mut setup = natively_evicted(seed, &[Verbs::Rc]);
        let right = run_setup(&setup, false).failure.is_none();
        setup.node.mutation = Some(marline_proto::Mutation::EvictEarly);
        right && run_setup(&setup, false).failure.is_some()
    });
    println!("RestEarly: {} seeds", noticed.map_or(0, |seed| seed + 1));
    assert!(noticed.is_some());
}

/// Each process has a single connection at a time.
fn evicted_links(seed: u64, kinds: &[Verbs]) -> Setup {
    let mut setup = setup(seed, kinds);
    setup.hosts = 3;
    setup.evictions = Evictions {
        most: 1,
        ppm: 3_000,
        datagrams_first: 0,
    };
    setup
}

/// The profile notices each typical mistake with connections and writes.
#[cfg(feature = "mutation")]
#[test]
fn mistakes_with_writes_under_way_are_noticed() {
    use marline_proto::Mutation;
    use marline_sim::Profile;
    std::panic::set_hook(Box::new(|_| {}));
    for mutation in [
        Mutation::TrustImmediates, // a packet counts before its writes have landed
        Mutation::LeaveStuck,      // a stuck connection is not replaced
        Mutation::ReadLate,        // a send's memory is reused before its writes are drained
        Mutation::KeepSource,      // a send's memory stays open to the device after its end
        Mutation::CloseEarly,      // a send's memory is closed before its writes are over
        Mutation::WaitOn,          // a rail whose writes never end is not drained
        Mutation::TrustWrites,     // the report of a write counts as its bytes
        Mutation::KeepKeys,        // keys outlive the completion
        Mutation::WriteLate,       // bytes are put in place under a key that is still open
        Mutation::ForgetMoved,     // data lost with a connection is not resent
    ] {
        let noticed = (0..1_500).find(|&seed| {
            let mut setup = Setup::draw(seed, Profile::Verbs, 0, 0);
            setup.node.mutation = Some(mutation);
            run_setup(&setup, false).failure.is_some()
        });
        assert!(noticed.is_some(), "{mutation:?}");
        println!("{mutation:?}: {} seeds", noticed.unwrap_or(0) + 1);
    }
}

/// Messages are written into the rails' staging memory and copied from there; writes of broken
/// connections may land among data staged later.
fn staging(seed: u64, kinds: &[Verbs]) -> Setup {
    let mut setup = setup(seed, kinds);
    setup.node.staged = Some(Pipeline {
        first_bytes: 8_192,
        growth_permille: 1_500,
        block_bytes: 4_096,
        chunk_max: 65_536,
    });
    setup.packet_faults.corrupt_payload = 5_000;
    setup
}

#[test]
fn staged_bytes_are_right_despite_late_writes() {
    use Verbs::{Rc, Uc};
    for kinds in [&[Rc][..], &[Uc], &[Rc, Rc], &[Uc, Rc]] {
        let (mut staged, mut writes) = (0, 0);
        for seed in 0..8 {
            let net = clean(&staging(seed, kinds)).net;
            (staged, writes) = (staged + net.staged, writes + net.writes);
        }
        assert!(
            staged > 1_000 && staged < writes,
            "{kinds:?}: {staged} of {writes}"
        );
    }
}

/// Without sums, misplaced bytes in staging memory would go unnoticed.
#[test]
fn nothing_is_staged_without_sums() {
    let mut setup = staging(1, &[Verbs::Rc]);
    setup.node.summed = (1, 0);
    setup.packet_faults.corrupt_payload = 0;
    let net = clean(&setup).net;
    assert!(net.staged == 0 && net.writes > 0, "{net:?}");
}

/// Long messages are read from the sender's memory, on connections that break meanwhile.
fn reading(seed: u64, kinds: &[Verbs]) -> Setup {
    let mut setup = setup(seed, kinds);
    setup.read_all();
    setup.node.segment_min = 32_768;
    setup.ops = 500;
    setup.packet_faults.breaks = 20_000;
    setup
}

#[test]
fn reads_of_broken_connections_are_granted_instead() {
    use Verbs::{Rc, Uc, Ud};
    for kinds in [&[Rc][..], &[Rc, Rc], &[Rc, Ud], &[Uc, Rc]] {
        let (mut reads, mut failed, mut writes) = (0, 0, 0);
        for seed in 0..8 {
            let net = clean(&reading(seed, kinds)).net;
            (reads, failed) = (reads + net.reads, failed + net.reads_failed);
            writes += net.writes;
        }
        assert!(
            reads > 100 && failed > 0 && writes > 0,
            "{kinds:?}: {reads} reads, {failed} failed, {writes} writes"
        );
    }
}

/// (A write into memory closed meanwhile breaks its connection, and with it the reads.)
#[test]
fn without_faults_every_read_completes() {
    let mut reads = 0;
    for seed in 0..8 {
        let mut setup = reading(seed, &[Verbs::Rc]);
        setup.packet_faults = PacketFaults::default();
        let net = clean(&setup).net;
        assert!(net.reads_failed == 0 || net.writes_refused > 0, "{seed}");
        reads += net.reads;
    }
    assert!(reads > 200, "{reads}");
}

/// Rails that report falsely on reads: sums detect it, and nothing lands after its message ended.
#[test]
fn false_reports_of_reads_are_noticed() {
    for how in [
        FalseReport::Never,
        FalseReport::Late(5 * MS),
        FalseReport::NeverOver,
    ] {
        let mut reads = 0;
        for seed in 0..4 {
            let mut setup = reading(seed, &[Verbs::Rc, Verbs::Rc]);
            let what = Trouble::Lies {
                host: 0,
                rail: 0,
                how,
            };
            setup.faults.push(marline_sim::Fault {
                from_ns: 0,
                to_ns: 200 * MS,
                what,
            });
            reads += clean(&setup).net.reads;
        }
        assert!(reads > 0, "{how:?}");
    }
}

/// Segments damaged during a read are requested again.
#[test]
fn damaged_segments_are_asked_for_again() {
    let mut reads = 0;
    for seed in 0..8 {
        let net = clean(&damaged_reads(seed)).net;
        assert!(net.reads_failed == 0 || net.writes_refused > 0, "{seed}");
        reads += net.reads;
    }
    assert!(reads > 200, "{reads}");
}

/// Reads suffer damage only.
fn damaged_reads(seed: u64) -> Setup {
    let mut setup = reading(seed, &[Verbs::Rc]);
    setup.packet_faults = PacketFaults {
        corrupt_payload: 50_000,
        ..PacketFaults::default()
    };
    setup
}

/// A rail of the first host carries nothing in either direction, without notification.
fn silence(setup: &mut Setup, rail: usize, (from_ns, to_ns): (u64, u64)) {
    for outgoing in [true, false] {
        let what = Trouble::Blackhole {
            host: 0,
            rail,
            outgoing,
        };
        let fault = marline_sim::Fault {
            from_ns,
            to_ns,
            what,
        };
        setup.faults.push(fault);
    }
}

/// Rails fall silent one after another (reliable connections, datagrams, UDP) until only TCP is
/// left, and all come back.
#[test]
fn rc_then_ud_then_udp_then_tcp_and_back() {
    let mut moved = [0; 4];
    for seed in 0..8 {
        let mut setup = setup(seed, &[Verbs::Rc, Verbs::Ud, Verbs::Ud, Verbs::Ud]);
        // Rails 2 and 3 are UDP and TCP.
        setup.verbs[2..].fill(None);
        (setup.connected[2], setup.streams[3]) = (false, true);
        (setup.packet_faults, setup.silent_ns) = (PacketFaults::default(), 1_900 * MS);
        (setup.work, setup.ops, setup.pause_ns) = (Work::Halo, 4_000, 200_000);
        setup.faults_end_ns = 50 * MS;
        for rail in 0..3 {
            let at = (5 + 5 * rail as u64) * MS;
            let to = setup.faults_end_ns - at;
            silence(&mut setup, rail, (at, to));
        }
        let outcome = clean(&setup);
        assert!(
            outcome.worked_ns > setup.faults_end_ns,
            "{}",
            outcome.worked_ns
        );
        assert!(outcome.net.writes > 0 && outcome.net.streamed > 0);
        for (moved, rail) in moved.iter_mut().zip(&outcome.rails) {
            *moved += rail.failovers;
        }
    }
    assert!(moved[..3].iter().all(|n| *n > 0), "{moved:?}");
}

/// Mutations of readers are noticed.
#[cfg(feature = "mutation")]
#[test]
fn reads_that_count_early_and_memory_left_open_are_noticed() {
    use marline_proto::Mutation;
    for mutation in [Mutation::PullEarly, Mutation::KeepAdvertisement] {
        let failed = (0..8).any(|seed| {
            let mut setup = reading(seed, &[Verbs::Rc]);
            setup.node.mutation = Some(mutation);
            run_setup(&setup, false).failure.is_some()
        });
        assert!(failed, "{mutation:?}");
    }
    let failed = (0..8).any(|seed| {
        let mut setup = damaged_reads(seed);
        setup.node.mutation = Some(Mutation::TrustReads);
        run_setup(&setup, false).failure.is_some()
    });
    assert!(failed, "a damaged segment is taken");
}
