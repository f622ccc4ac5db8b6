//! Draws the faults of a seed, by its profile, and the rarer kinds of work. Kinds that were added
//! later draw from separate random numbers, so that the other draws of a seed do not change.

use crate::base::rng::Rng;
use crate::machine::place::SITES;
use crate::setup::choices::{span, Fault, PacketFaults, Setup, Trouble, Work};
use crate::setup::profile::Profile;
use crate::setup::writes::{draw_shuffles, draw_verbs, draw_writes};
use marline_proto::FRAGMENT_MAX;

/// Longest time for which packets are held back: long enough for their retransmissions to be
/// delivered and forgotten.
pub(crate) const LATE_NS: u64 = 300_000_000;

/// Draws the faults of this profile.
pub(crate) fn draw_faults(setup: &mut Setup, profile: Profile, rng: &mut Rng) {
    let verbs = matches!(profile, Profile::Verbs | Profile::Native);
    if matches!(profile, Profile::Swarm | Profile::Loss) || verbs {
        setup.packet_faults = draw_packet_faults(rng);
    }
    let rails = matches!(profile, Profile::Swarm | Profile::Rails) || verbs;
    if rails {
        draw_rail_faults(setup, rng);
    }
    if matches!(profile, Profile::Swarm | Profile::Peers) {
        draw_host_faults(setup, rng);
        draw_long_descheduled(setup);
        draw_refusals(setup);
    }
    if rails {
        draw_corruption(setup);
        draw_last_rail(setup);
        draw_flaps(setup);
        draw_slow_rails(setup);
        draw_hung_queues(setup);
        let rng = &mut Rng::new(setup.seed, 6);
        setup.streams = (0..setup.rails).map(|_| rng.one_in(4)).collect();
    }
    if rails {
        draw_partial(setup);
        draw_moves(setup);
        draw_forgotten(setup);
    }
    if profile != Profile::Calm {
        draw_strangers(setup);
    }
    if verbs {
        draw_verbs(setup);
        return;
    }
    if profile == Profile::Outages {
        draw_outages(setup);
        draw_forgotten(setup);
    }
    if profile != Profile::Calm {
        let lies = matches!(profile, Profile::Swarm | Profile::Rails);
        draw_writes(setup, lies);
        draw_shuffles(setup);
    }
    draw_connections(setup);
    if profile == Profile::Calm {
        setup.packet_faults.breaks = 0;
    }
}

/// Draws strangers, from separate random numbers, in a third of the seeds.
fn draw_strangers(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 51);
    if rng.one_in(3) {
        setup.packet_faults.strangers = rng.pick(&[1_000, 10_000, 50_000]);
    }
}

/// Each fault is on in a third of the seeds.
fn draw_packet_faults(rng: &mut Rng) -> PacketFaults {
    let mut some = |levels: &[u32]| if rng.one_in(3) { rng.pick(levels) } else { 0 };
    let mut packet_faults = PacketFaults {
        drop: some(&[100, 5_000, 20_000, 100_000, 250_000]),
        duplicate: some(&[1_000, 20_000, 200_000]),
        reorder: some(&[1_000, 50_000, 300_000]),
        reorder_ns: 0,
        corrupt_head: some(&[1_000, 20_000, 100_000]),
        corrupt_payload: some(&[1_000, 20_000, 100_000]),
        truncate: some(&[1_000, 20_000]),
        batch_drop: some(&[5_000, 50_000]),
        breaks: 0,
        jitter_ns: some(&[1_000, 20_000, 500_000]) as u64,
        forge: some(&[1_000, 20_000]),
        strangers: 0,
    };
    packet_faults.reorder_ns = rng.pick(&[5_000, 100_000, 3_000_000, LATE_NS]);
    packet_faults
}

/// One rail of all hosts.
fn a_rail(setup: &Setup, rng: &mut Rng) -> (usize, usize) {
    let host = rng.below(setup.hosts as u64) as usize;
    (host, rng.below(setup.rails as u64) as usize)
}

fn draw_rail_faults(setup: &mut Setup, rng: &mut Rng) {
    let count = rng.pick(&[0, 0, 1, 2, 4, 8]);
    for _ in 0..count {
        let (from_ns, to_ns) = span(setup, rng);
        let (host, rail) = a_rail(setup, rng);
        let notified = rng.one_in(2);
        let what = match rng.below(6) {
            0 | 1 => Trouble::RailDown {
                host,
                rail,
                notified,
            },
            2 | 3 => Trouble::Blackhole {
                host,
                rail,
                outgoing: notified,
            },
            4 => Trouble::Gray {
                host,
                rail,
                drop: rng.pick(&[10_000, 300_000, 700_000]),
                delay_ns: rng.pick(&[0, 100_000, 5_000_000]),
            },
            _ => Trouble::SmallMtu {
                host,
                rail,
                mtu: rng.pick(&[1_232, 1_400, 576, 1_452]),
                notified,
            },
        };
        setup.add((from_ns, to_ns), what);
    }
}

/// Draws rails that damage packets, from separate random numbers, so that the other faults of a
/// seed do not change.
fn draw_corruption(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 4);
    for _ in 0..rng.pick(&[0, 0, 0, 1, 1, 2, 4]) {
        let (from_ns, to_ns) = span(setup, rng);
        let (host, rail) = a_rail(setup, rng);
        let ppm = rng.pick(&[5_000, 50_000, 300_000]);
        let what = Trouble::Corrupt { host, rail, ppm };
        setup.add((from_ns, to_ns), what);
    }
    let rng = &mut Rng::new(setup.seed, 5);
    setup.node.fragment_max = rng.pick(&[FRAGMENT_MAX, FRAGMENT_MAX, 448, 896, 4_032]);
    let w = &setup.packet_faults;
    let packet_faults = w.corrupt_head + w.corrupt_payload + w.truncate;
    // Without sums, damage would not be noticed.
    if packet_faults == 0 && !setup.faults.iter().any(Fault::damages) {
        setup.node.summed = rng.pick(&[(0, u64::MAX), (100, 70_000)]);
    }
}

/// Makes all rails of a host fail within a moment, with notice. The last one to fail stays down for
/// longer than peers wait; the others come back at once, so traffic that moved to it must move
/// back. From separate random numbers, too.
fn draw_last_rail(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 7);
    if setup.rails < 2 || !rng.one_in(8) {
        return;
    }
    let host = rng.below(setup.hosts as u64) as usize;
    let last = rng.below(setup.rails as u64) as usize;
    let from = rng.below(setup.faults_end_ns);
    let gap = rng.pick(&[20_000, 200_000, 2_000_000]);
    let long = from + setup.node.peer_timeout_ns * 3 / 2;
    for rail in 0..setup.rails {
        let (from_ns, to_ns) = match rail == last {
            true => (from + rng.below(gap), long),
            false => (from, from + gap + rng.below(gap)),
        };
        let what = Trouble::RailDown {
            host,
            rail,
            notified: true,
        };
        setup.add((from_ns, to_ns), what);
    }
    setup.faults_end_ns = setup.faults_end_ns.max(long);
}

/// Draws rails whose links are connections: in a quarter of the seeds any rails, otherwise only
/// rails that are streams anyway.
fn draw_connections(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 21);
    if setup.faults.iter().any(|f| setup.outlasts_connections(f)) {
        return;
    }
    let more = rng.one_in(4);
    for rail in 0..setup.rails {
        setup.connected[rail] = rng.one_in(2);
        // Otherwise the meaning of existing seeds would change.
        setup.connected[rail] &= !setup.writes[rail];
        setup.streams[rail] |= more && setup.connected[rail];
    }
    setup.packet_faults.breaks = rng.pick(&[0, 0, 100, 3_000]);
}

/// In a sixth of the seeds, of any profile, makes a rail near. Also draws how long connections
/// survive a network that carries nothing.
pub(crate) fn draw_near(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 22);
    setup.silent_ns = rng.pick(&[0, 20_000_000, 200_000_000]);
    let taken = !setup.verbs.iter().all(Option::is_none);
    if taken || !rng.one_in(6) || setup.faults.iter().any(|f| setup.outlasts_connections(f)) {
        return;
    }
    let rail = rng.below(setup.rails as u64) as usize;
    setup.near = Some(rail);
    (setup.streams[rail], setup.connected[rail]) = (true, true);
    setup.writes[rail] = false;
}

impl Setup {
    /// Makes a rail the standby rail of the one before it, as TCP is of UDP by default: at the same
    /// address, with streams, connections, and writes in order.
    pub fn set_standby(&mut self, rail: usize) {
        self.behind = Some(rail);
        for (of, behind) in [(rail - 1, false), (rail, true)] {
            (self.streams[of], self.connected[of]) = (behind, behind);
            self.writes[of] = behind;
        }
    }

    /// Keeps standby rails from moving: two rails of one address would have to move together.
    pub(crate) fn fit_behind(&mut self) {
        if self.behind.is_some() {
            self.faults.retain(|f| !is_move(f));
        }
    }
}

fn is_move(fault: &Fault) -> bool {
    matches!(fault.what, Trouble::Move { .. })
}

/// In a quarter of the suitable seeds, makes a rail the standby rail of another. If hosts fail, a
/// firewall refuses packets to the preferred rail of a process, which is stopped in half of the
/// cases; the standby rail still answers.
pub(crate) fn draw_standby(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 45);
    let verbs = setup.verbs.iter().any(Option::is_some);
    let unfit = |f: &Fault| setup.outlasts_connections(f) || is_move(f);
    if setup.rails < 2 || verbs || !rng.one_in(4) || setup.faults.iter().any(unfit) {
        return;
    }
    let rail = rng.range(1, setup.rails as u64 - 1) as usize;
    if [Some(rail), Some(rail - 1)].contains(&setup.near) {
        return;
    }
    setup.set_standby(rail);
    if !matches!(setup.profile, Profile::Peers | Profile::Swarm) || !rng.one_in(2) {
        return;
    }
    let host = rng.below(setup.hosts as u64) as usize;
    let from = rng.range(1_000_000, setup.faults_end_ns);
    let to = from + rng.range(150_000_000, 400_000_000);
    let rail = rail - 1;
    setup.add((from, to), Trouble::Refuse { host, rail });
    if rng.one_in(2) {
        setup.add((from, to), Trouble::Stopped { host });
    }
    setup.faults_end_ns = setup.faults_end_ns.max(to);
}

/// A rail goes down and up again and again.
fn draw_flaps(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 10);
    if !rng.one_in(8) {
        return;
    }
    let (host, rail) = a_rail(setup, rng);
    let notified = rng.one_in(2);
    let period_ns = rng.pick(&[100_000, 1_000_000, 5_000_000]);
    let down_ns = period_ns * rng.range(1, 9) / 10;
    let mut from_ns = rng.below(setup.faults_end_ns);
    for _ in 0..rng.range(3, 30) {
        if from_ns + down_ns > setup.faults_end_ns {
            break;
        }
        let what = Trouble::RailDown {
            host,
            rail,
            notified,
        };
        setup.add((from_ns, from_ns + down_ns), what);
        from_ns += period_ns;
    }
}

/// Draws rails that lose packets in one direction only, rails that get slow, and queues that hold
/// far more than they should.
fn draw_slow_rails(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 12);
    if rng.one_in(8) {
        setup.queue_ns = rng.pick(&[50_000_000, 200_000_000]);
    }
    for _ in 0..rng.pick(&[0, 0, 0, 1, 2, 4]) {
        let (host, rail) = a_rail(setup, rng);
        let what = match rng.one_in(2) {
            true => Trouble::Leak {
                host,
                rail,
                outgoing: rng.one_in(2),
                ppm: rng.pick(&[20_000, 200_000, 600_000]),
            },
            false => Trouble::Slow {
                host,
                rail,
                divisor: rng.pick(&[3, 10, 30]),
            },
        };
        let span = span(setup, rng);
        setup.add(span, what);
    }
}

/// Draws queues that do not move, some for longer than the time after which a rail is given up.
fn draw_hung_queues(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 17);
    if !rng.one_in(8) {
        return;
    }
    for _ in 0..rng.pick(&[1, 1, 2]) {
        let (host, rail) = a_rail(setup, rng);
        let from = rng.below(setup.faults_end_ns);
        let most = rng.pick(&[1_000_000, 15_000_000, 250_000_000]);
        let to = from + rng.range(most / 10, most);
        setup.add((from, to), Trouble::Hung { host, rail });
        setup.faults_end_ns = setup.faults_end_ns.max(to);
    }
}

/// Draws rails whose addresses change; in half of the cases the rails of two hosts at the same
/// time. If there are other rails, one stays where it is, and none fails for long, so that all
/// peers can be told.
fn draw_moves(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 30);
    let long = |f: &Fault| f.what.rail().is_some() && setup.outlasts_connections(f);
    if !rng.one_in(8) || setup.faults.iter().any(long) {
        return;
    }
    let stays = rng.below(setup.rails as u64) as usize;
    let (together, later) = (rng.one_in(2), setup.rails > 1 && rng.one_in(2));
    for _ in 0..rng.pick(&[1, 2, 4, 8]) {
        let (host, rail) = a_rail(setup, rng);
        let at = span(setup, rng);
        if setup.rails > 1 && rail == stays {
            continue;
        }
        // Two hosts whose only rails move at the same time lose each other for good.
        setup.may_die |= setup.rails == 1;
        for host in [Some(host), together.then_some((host + 1) % setup.hosts)] {
            let to = rng.below(SITES.into()) as u16;
            let Some(host) = host else { continue };
            setup.add(at, Trouble::Move { host, rail, to });
            if later {
                setup.awaited.push((host, rail));
            }
        }
    }
}

/// Makes flows and connections be forgotten: of one rail, or of all rails of a host at once.
fn draw_forgotten(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 48);
    if !rng.one_in(6) {
        return;
    }
    for _ in 0..rng.pick(&[1, 1, 2, 4]) {
        let (host, rail) = a_rail(setup, rng);
        let at = rng.below(setup.faults_end_ns);
        let all = rng.one_in(2);
        for rail in (0..setup.rails).filter(|&r| all || r == rail) {
            setup.add((at, at + 1), Trouble::Forget { host, rail });
        }
    }
}

/// In half of the seeds, makes kernels ask for neighbours once a second, as real ones do. Leaves
/// out setups with a shorter peer timeout, and those in which a rail carries one direction alone
/// for long: on such a rail no question for a neighbour is answered.
pub(crate) fn draw_neighbours(setup: &mut Setup) {
    const NEIGHBOUR_RESOLUTION_NS: u64 = 1_000_000_000;
    let mut faults = setup.faults.iter();
    let one_way = |f: &Fault| matches!(f.what, Trouble::Blackhole { .. });
    let mute = faults.any(|f| one_way(f) && setup.outlasts_connections(f));
    let asks = Rng::new(setup.seed, 47).one_in(2) && !mute;
    setup.neighbour_resolution_ns =
        match asks && setup.node.peer_timeout_ns > NEIGHBOUR_RESOLUTION_NS {
            true => NEIGHBOUR_RESOLUTION_NS,
            false => 0,
        };
}

/// Draws a firewall that refuses packets to one rail of a host. In half of the cases the host's
/// process is stopped meanwhile, so that its peers receive only refusals.
fn draw_refusals(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 18);
    if setup.rails < 2 || !rng.one_in(12) {
        return;
    }
    let (host, rail) = a_rail(setup, rng);
    let from = rng.range(1_000_000, setup.faults_end_ns);
    let to = from + rng.range(150_000_000, 400_000_000);
    setup.add((from, to), Trouble::Refuse { host, rail });
    if rng.one_in(2) {
        setup.add((from, to), Trouble::Stopped { host });
    }
    setup.faults_end_ns = setup.faults_end_ns.max(to);
}

/// Draws rails that, without notice, carry only a part for longer than the peer timeout: no long
/// packets, or one direction each.
fn draw_partial(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 20);
    let timeout_ns = setup.node.peer_timeout_ns;
    if !rng.one_in(6) {
        return;
    }
    let (host, rail) = a_rail(setup, rng);
    // In a quarter of the cases from the first packet on.
    let from_ns = rng.below(setup.faults_end_ns) * (rng.below(4).min(1));
    let to_ns = from_ns + timeout_ns * rng.range(5, 25) / 10;
    setup.faults_end_ns = setup.faults_end_ns.max(to_ns);
    if setup.rails > 1 && rng.one_in(2) {
        for other in 0..setup.rails {
            let outgoing = match (other + setup.rails - rail) % setup.rails {
                0 => true,
                1 => false,
                _ => rng.one_in(2),
            };
            let what = Trouble::Blackhole {
                host,
                rail: other,
                outgoing,
            };
            setup.add((from_ns, to_ns), what);
        }
        return;
    }
    let mtu = rng.pick(&[576, 800, 1_200, 1_400, 4_000]);
    let all = rng.one_in(4);
    for rail in (0..setup.rails).filter(|&r| all || r == rail) {
        let notified = false;
        let what = Trouble::SmallMtu {
            host,
            rail,
            mtu,
            notified,
        };
        setup.add((from_ns, to_ns), what);
    }
}

/// Operations in outages of a minute and more, in which there are few packets.
const OUTAGE_OPS: u32 = 60;

/// Makes all rails of a host carry nothing for 1 to 100 s, with notice or without, or refuse
/// packets for up to 3.5 s; peers may be silent for two minutes. In a third of the seeds a host
/// dies as well.
fn draw_outages(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 50);
    setup.node.peer_timeout_ns = 120_000_000_000;
    setup.ops = setup.ops.min(OUTAGE_OPS);
    setup.streams = (0..setup.rails).map(|_| rng.one_in(3)).collect();
    let host = rng.below(setup.hosts as u64) as usize;
    let from = rng.range(100_000, setup.faults_end_ns);
    let mut to = from + rng.range(1, 10) * rng.pick(&[1_000_000_000, 10_000_000_000]);
    let (kind, notified) = (rng.below(5), rng.one_in(2));
    if kind == 4 {
        to = from + rng.range(500, 3_500) * 1_000_000;
    }
    for rail in 0..setup.rails {
        // Cables are pulled, and ports come back, one after another.
        let apart = rng.below(20_000_000);
        let what = match kind {
            0 | 1 => Trouble::RailDown {
                host,
                rail,
                notified,
            },
            2 => Trouble::Blackhole {
                host,
                rail,
                outgoing: notified,
            },
            3 => break,
            _ => Trouble::Refuse { host, rail },
        };
        setup.add((from + apart, to + rng.below(20_000_000)), what);
    }
    if kind == 3 {
        let split = rng.range(1, setup.hosts as u64 - 1) as usize;
        setup.add((from, to), Trouble::Partition { split });
    }
    if rng.one_in(3) {
        let host = rng.below(setup.hosts as u64) as usize;
        let dies = from + rng.below(to - from);
        let reborn = false;
        setup.add((dies, dies + 1), Trouble::Death { host, reborn });
    }
    setup.faults_end_ns = setup.faults_end_ns.max(to + 20_000_000);
}

/// Draws a process that computes for longer than the peer timeout, and must not be declared dead if
/// it has a progress thread; or a process that is stopped for that long, and may be declared dead.
fn draw_long_descheduled(setup: &mut Setup) {
    let rng = &mut Rng::new(setup.seed, 13);
    if !rng.one_in(12) {
        return;
    }
    let (host, _) = a_rail(setup, rng);
    let from = rng.below(setup.faults_end_ns);
    let to = from + setup.node.peer_timeout_ns * rng.range(5, 25) / 10;
    let what = match rng.one_in(3) {
        true => Trouble::Stopped { host },
        false => Trouble::Compute { host },
    };
    let answers = setup.threaded && matches!(what, Trouble::Compute { .. });
    setup.may_die |= !answers;
    setup.add((from, to), what);
    setup.faults_end_ns = setup.faults_end_ns.max(to);
}

/// Draws one of the later kinds of work in one of eight seeds.
pub(crate) fn draw_pattern(setup: &mut Setup) {
    setup.node.any_source_fails = Rng::new(setup.seed, 15).one_in(2);
    let rng = &mut Rng::new(setup.seed, 11);
    if rng.one_in(8) {
        setup.work = rng.pick(&[
            Work::Tree,
            Work::Collective,
            Work::Collective,
            Work::Storm,
            Work::Fence,
            Work::Fence,
        ]);
    }
}

fn draw_host_faults(setup: &mut Setup, rng: &mut Rng) {
    let count = rng.pick(&[0, 0, 1, 2, 4]);
    for _ in 0..count {
        let (from_ns, to_ns) = span(setup, rng);
        let host = rng.below(setup.hosts as u64) as usize;
        let what = match rng.below(8) {
            0 | 1 => Trouble::Compute { host },
            2 | 3 => Trouble::Stopped { host },
            4 => Trouble::ClockJump {
                host,
                by_ns: rng.pick(&[1_000_000, 50_000_000, 600_000_000]),
            },
            5 => Trouble::Partition {
                split: rng.range(1, setup.hosts as u64 - 1) as usize,
            },
            _ => Trouble::Death {
                host,
                reborn: rng.one_in(2),
            },
        };
        setup.add((from_ns, to_ns), what);
    }
    if rng.one_in(12) {
        // Longer than the peer timeout: both sides declare each other dead.
        setup.may_die = true;
        let from_ns = rng.below(setup.faults_end_ns);
        let to_ns = from_ns + setup.node.peer_timeout_ns * 3 / 2;
        let split = rng.range(1, setup.hosts as u64 - 1) as usize;
        setup.add((from_ns, to_ns), Trouble::Partition { split });
        setup.faults_end_ns = to_ns;
    }
}
