//! Tests of an application whose thread yielded its core and does not get it back.

use crate::caps;

use marline_engine::{
    Clock, CoreConfig, Engine, EpId, IoVec, LogSink, OpFlags, Parts, RecvReq, Region, RemoteReq,
    SendReq, System, ADDR_UNSPEC,
};
use marline_proto::Config;
use marline_rails::{
    addr_links, no_groups, no_remote_write, plain_buffers, AddrLinks, Armed, Caps, InterfaceChoice,
    LinkId, PlainBuffers, RailEvent, RailRx, RailTx, Received, SendOutcome, UdpAddr, BUFFER_LEN,
};
use marline_wire::RailAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A rail on which no useful packet ever arrives. Counts its polls, and polls of the sockets on
/// which no packets are expected.
struct Silent {
    polls: Arc<AtomicU64>,
    /// Number of coming polls that report packets without passing any on.
    finds: Arc<AtomicU64>,
    evictions: Arc<AtomicU64>,
    links: AddrLinks,
    buffers: PlainBuffers,
}

impl Silent {
    fn new(polls: &Arc<AtomicU64>, evictions: &Arc<AtomicU64>, finds: &Arc<AtomicU64>) -> Silent {
        Silent {
            polls: polls.clone(),
            finds: finds.clone(),
            evictions: evictions.clone(),
            links: AddrLinks::default(),
            buffers: PlainBuffers::new(BUFFER_LEN, 1),
        }
    }
}

addr_links!(Silent, links);
plain_buffers!(Silent, buffers);
no_groups!(Silent);
no_remote_write!(Silent);

impl RailTx for Silent {
    fn caps(&self) -> Caps {
        caps::caps()
    }
    fn move_to(&mut self, _: &InterfaceChoice) -> Option<RailAddr> {
        None
    }

    fn local_addr(&self) -> RailAddr {
        let addr = UdpAddr {
            ip: [10, 0, 0, 1].into(),
            port: 4_000,
            prefix_len: 16,
        };
        let mut rail = addr.rail();
        rail.datagram_max = 1_472;
        rail
    }
    fn send(&mut self, _: LinkId, _: &[u8], _: usize, _: u8) -> SendOutcome {
        SendOutcome::Sent
    }
    fn poll_event(&mut self) -> Option<RailEvent> {
        None
    }
}

impl RailRx for Silent {
    fn recv(&mut self, _: &mut dyn FnMut(Received<'_>)) -> usize {
        self.polls.fetch_add(1, Relaxed);
        let less = |n: u64| n.checked_sub(1);
        usize::from(self.finds.fetch_update(Relaxed, Relaxed, less).is_ok())
    }
    fn recv_rest(&mut self, _: &mut dyn FnMut(Received<'_>)) -> usize {
        self.evictions.fetch_add(1, Relaxed);
        0
    }
    fn fd(&self) -> Option<i32> {
        None
    }
    fn arm(&mut self) -> Armed {
        Armed::Sleep
    }
}

type Act = dyn Fn(&Engine<Slow>, EpId);
type OnYield = Box<dyn FnMut() + Send>;

/// Time set by hand, and a core that stays away for as long as the test wants.
#[derive(Clone)]
struct Slow {
    now_ns: Arc<AtomicU64>,
    on_yield: Arc<Mutex<Option<OnYield>>>,
    yields: Arc<AtomicU64>,
    sleep_budget: Arc<AtomicU64>,
    /// The longest sleep.
    sleep_max_ns: Arc<AtomicU64>,
    alarms: Arc<AtomicU64>,
    finds: Arc<AtomicU64>,
}

impl Clock for Slow {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }
}

impl System for Slow {
    type Tx = Silent;
    type Rx = Silent;
    type Watch = ();
    fn alarm(&self) {
        self.alarms.fetch_add(1, Relaxed);
    }
    fn yield_now(&self) {
        self.yields.fetch_add(1, Relaxed);
        if let Some(action) = self.on_yield.lock().unwrap().as_mut() {
            action();
        }
    }
    fn sleep(&self, _: &[i32], timeout_ns: u64) {
        self.now_ns.fetch_add(timeout_ns, Relaxed);
        self.sleep_budget.fetch_add(1, Relaxed);
        self.sleep_max_ns.fetch_max(timeout_ns, Relaxed);
    }
}

/// An engine on this many rails, with the poll count of each.
fn engine(rails: usize) -> (Arc<Engine<Slow>>, Slow, Vec<Arc<AtomicU64>>) {
    engine_with(rails, &Arc::default())
}

/// An engine that also counts polls of sockets on which no packets are expected.
fn engine_with(
    rails: usize,
    evictions: &Arc<AtomicU64>,
) -> (Arc<Engine<Slow>>, Slow, Vec<Arc<AtomicU64>>) {
    let polls: Vec<_> = (0..rails).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let system = Slow {
        now_ns: Arc::new(AtomicU64::new(1_000_000)),
        on_yield: Arc::default(),
        yields: Arc::default(),
        sleep_budget: Arc::default(),
        sleep_max_ns: Arc::default(),
        alarms: Arc::default(),
        finds: Arc::default(),
    };
    let silent = |polls: &Arc<_>| Silent::new(polls, evictions, &system.finds);
    let cfg = CoreConfig {
        proto: Config::default(),
        log_bytes: 1 << 20,
        borrow: false,
        aggregate_after: 2,
        rpcs: true,
        mtu: 0,
    };
    let parts = Parts {
        rails: polls.iter().map(|p| ("rail".into(), silent(p))).collect(),
        halves: polls.iter().map(silent).collect(),
        clock: system.clone(),
        watch: (),
        tick_ns: 10_000_000,
        threaded: true,
        random: Box::new(|| Ok(7)),
        log: LogSink(Arc::new(|_, _| {})),
    };
    (Arc::new(Engine::assemble(cfg, parts)), system, polls)
}

/// An enabled endpoint, whose own address is 0.
fn endpoint(engine: &Engine<Slow>) -> EpId {
    let (av, ep) = (engine.av_open(), engine.ep_open().unwrap());
    engine.ep_bind_av(ep, av);
    engine.ep_enable(ep).unwrap();
    let (name, len) = engine.ep_name(ep).unwrap();
    assert_eq!(engine.av_insert(av, &name[..len]), Ok(0));
    ep
}

/// Posts a receive of a message that never comes, or peeks for it once.
fn await_message(engine: &Engine<Slow>, ep: EpId, flags: OpFlags) {
    let receive = RecvReq {
        source: ADDR_UNSPEC,
        iov: &[],
        tag: None,
        context: 0,
        flags,
    };
    engine.recv(ep, &receive).unwrap();
}

/// On an oversubscribed core `sched_yield` may take seconds (Linux 6.18). The progress thread has
/// to get the lock meanwhile, or the peers declare a live process dead.
#[test]
fn the_progress_thread_polls_while_the_application_has_yielded() {
    let (engine, system, polls) = engine(1);
    let seen = Arc::new(Mutex::new(None));
    let (thread, time, out) = (engine.clone(), system.now_ns.clone(), seen.clone());
    let polls = polls[0].clone();
    *system.on_yield.lock().unwrap() = Some(Box::new(move || {
        time.fetch_add(5_000_000_000, Relaxed);
        let before = polls.load(Relaxed);
        thread.thread_turn(false);
        *out.lock().unwrap() = Some(polls.load(Relaxed) - before);
    }));
    // More empty polls than the engine may have learnt to wait before a yield.
    for _ in 0..10_000 {
        engine.progress();
    }
    let polled = seen
        .lock()
        .unwrap()
        .expect("empty polls never offered the processor");
    assert!(polled > 0, "the thread could not poll the rail");
    *system.on_yield.lock().unwrap() = None; // breaks a cycle of references
}

/// Ranks of Open MPI that yield in a loop on oversubscribed cores may not run for seconds (Linux
/// 6.18) and are declared dead. An engine that has met other processes sleeps instead; an
/// occasional yield tests whether they are still there, and without them it does not sleep.
#[test]
fn an_engine_on_a_shared_core_sleeps_instead_of_yielding() {
    let (engine, system, _) = engine(1);
    await_message(&engine, endpoint(&engine), OpFlags::default());
    let poll = || (0..10_000).for_each(|_| engine.progress());
    poll();
    let alone = system.yields.load(Relaxed);
    assert!(alone > 0, "empty polls never offered the processor");
    assert_eq!(
        system.sleep_budget.load(Relaxed),
        0,
        "slept though it was alone"
    );

    let others = Arc::new(AtomicU64::new(20));
    share(&system, &others, 3_000_000);
    poll();
    let met = 20 - others.load(Relaxed);
    let sleep_budget = system.sleep_budget.load(Relaxed);
    assert!(met > 10, "asked {met} times whether others are there");
    assert!(
        sleep_budget > 10 * met,
        "{sleep_budget} sleeps for {met} yields"
    );

    others.store(0, Relaxed);
    poll();
    let sleep_budget = system.sleep_budget.load(Relaxed);
    poll();
    assert_eq!(
        system.sleep_budget.load(Relaxed),
        sleep_budget,
        "others have gone"
    );
}

/// The longest sleep of an engine that polls after `act`, beside other processes that hold the core
/// for so long.
fn longest_sleep(act: &Act, took_ns: u64) -> u64 {
    let (engine, system, _) = engine(1);
    let ep = endpoint(&engine);
    share(&system, &Arc::new(AtomicU64::new(u64::MAX)), took_ns);
    for _ in 0..100 {
        act(&engine, ep);
        (0..100).for_each(|_| engine.progress());
    }
    *system.on_yield.lock().unwrap() = None; // breaks a cycle of references
    assert!(system.yields.load(Relaxed) > 0, "nothing was offered");
    system.sleep_max_ns.load(Relaxed)
}

/// MPICH makes a barrier within a host in shared memory of its own: on oversubscribed cores ranks
/// must not sleep until a packet, which does not come.
#[test]
fn without_awaited_packets_no_sleep_waits_for_one() {
    let (waits, computes) = (100_000, 3_000_000);
    let nothing = |_: &Engine<Slow>, _| {};
    assert_eq!(longest_sleep(&nothing, waits), 0);
    let short = longest_sleep(&nothing, computes);
    assert!((1..1_000_000).contains(&short), "{short}");
    let buffer = OpFlags {
        multi_recv: true,
        ..OpFlags::default()
    };
    let buffer = move |engine: &Engine<Slow>, ep| await_message(engine, ep, buffer);
    assert_eq!(longest_sleep(&buffer, waits), 0, "MPICH has some always");
}

/// An open operation, or a peek, awaits a packet.
#[test]
fn with_awaited_packets_a_sleep_waits_for_one() {
    let receive = |engine: &Engine<Slow>, ep| await_message(engine, ep, OpFlags::default());
    let peek = OpFlags {
        peek: true,
        ..OpFlags::default()
    };
    let peek = move |engine: &Engine<Slow>, ep| await_message(engine, ep, peek);
    let send = |engine: &Engine<Slow>, ep| {
        let send = SendReq {
            dest: 0,
            iov: &[],
            tag: None,
            data: None,
            context: 0,
            flags: OpFlags {
                match_complete: true,
                ..OpFlags::default()
            },
        };
        engine.send(ep, &send).unwrap();
    };
    let awaits: [&Act; 3] = [&receive, &peek, &send];
    for (number, await_packet) in awaits.into_iter().enumerate() {
        let longest = longest_sleep(await_packet, 100_000);
        assert!(longest > 200_000, "{number}: {longest}");
    }
}

/// A caller that waits for a broadcast yields by itself between two polls. If another process took
/// the core, later polls know that.
#[test]
fn a_look_is_one_poll_and_its_callers_yields_are_learnt_from() {
    let (engine, system, polls) = engine(1);
    await_message(&engine, endpoint(&engine), OpFlags::default());
    engine.look(); // the first poll covers all rails, twice
    let before = polls[0].load(Relaxed);
    (0..1_000).for_each(|_| engine.look());
    let offers = (
        system.yields.load(Relaxed),
        system.sleep_budget.load(Relaxed),
    );
    assert_eq!((polls[0].load(Relaxed) - before, offers), (1_000, (0, 0)));
    assert!(!engine.yield_cpu(), "alone");
    share(&system, &Arc::new(AtomicU64::new(1)), 3_000_000);
    assert!(engine.yield_cpu());
    assert_eq!(system.yields.load(Relaxed), 2);
    (0..100).for_each(|_| engine.progress());
    assert!(system.sleep_budget.load(Relaxed) > 0);
    *system.on_yield.lock().unwrap() = None; // breaks a cycle of references
}

/// The next yields find other processes, each of which runs for so long.
fn share(system: &Slow, times: &Arc<AtomicU64>, took_ns: u64) {
    let (again, times_left) = (system.clone(), times.clone());
    *system.on_yield.lock().unwrap() = Some(Box::new(move || {
        if times_left.load(Relaxed) > 0 {
            times_left.fetch_sub(1, Relaxed);
            again.now_ns.fetch_add(took_ns, Relaxed);
        }
    }));
}

/// Beside busy processes a rank may poll once per scheduler slice of 4 ms. A second rail that is
/// read at every sixteenth poll only would then be declared down without any fault.
#[test]
fn the_first_poll_after_a_gap_reads_every_rail() {
    let (engine, system, polls) = engine(3);
    engine.progress();
    for _ in 0..10 {
        system.now_ns.fetch_add(4_000_000, Relaxed);
        let before: Vec<u64> = polls.iter().map(|p| p.load(Relaxed)).collect();
        engine.progress();
        let left: Vec<usize> = (0..polls.len())
            .filter(|&rail| polls[rail].load(Relaxed) == before[rail])
            .collect();
        assert!(left.is_empty(), "rails not read: {left:?}");
    }
}

/// Packets may arrive even on sockets on which none are expected.
#[test]
fn sockets_without_expected_packets_are_polled_occasionally() {
    let evictions = Arc::default();
    let (engine, system, polls) = engine_with(1, &evictions);
    let since = |work: &dyn Fn()| {
        let (all, rest) = (polls[0].load(Relaxed), evictions.load(Relaxed));
        work();
        (polls[0].load(Relaxed) - all, evictions.load(Relaxed) - rest)
    };
    let (all, rest) = since(&|| (0..1_000).for_each(|_| engine.progress()));
    assert!(
        rest >= all / 20 && rest <= all / 10,
        "{rest} of {all} polls"
    );
    // Rare polls; the thread's polls.
    for _ in 0..10 {
        system.now_ns.fetch_add(30_000, Relaxed);
        engine.progress();
    }
    let (all, rest) = since(&|| {
        for _ in 0..100 {
            system.now_ns.fetch_add(30_000, Relaxed);
            engine.progress();
        }
    });
    assert!(rest >= 25, "{rest} of {all} polls in 3 ms");
    system.now_ns.fetch_add(50_000_000, Relaxed);
    assert!(since(&|| _ = engine.thread_turn(false)).1 > 0);
}

/// A thread with the long tick would sleep through most slices in which the application does not
/// run.
#[test]
fn the_tick_is_short_for_an_often_descheduled_application() {
    let (engine, system, _) = engine(1);
    let tick = |engine: &Engine<Slow>| {
        let (next, _) = engine.thread_turn(false);
        next - system.now_ns.load(Relaxed)
    };
    engine.progress();
    assert_eq!(tick(&engine), 10_000_000);
    for _ in 0..30 {
        system.now_ns.fetch_add(4_000_000, Relaxed);
        engine.progress();
        system.now_ns.fetch_add(1_000, Relaxed);
        engine.progress();
    }
    assert_eq!(tick(&engine), 1_000_000);
    for _ in 0..2_000 {
        system.now_ns.fetch_add(100_000, Relaxed);
        engine.progress();
    }
    assert_eq!(tick(&engine), 10_000_000, "it polls well again");
}

/// Time between the last poll and the thread's sleep on the descriptors, if the thread checked
/// `before_ns` earlier than that poll.
fn unserved_ns(engine: &Engine<Slow>, system: &Slow, before_ns: u64) -> u64 {
    engine.progress();
    let (mut next, mut armed) = engine.thread_turn(false);
    system.now_ns.fetch_add(before_ns, Relaxed);
    engine.progress();
    let polled = system.now_ns.load(Relaxed);
    while !armed {
        system.now_ns.fetch_max(next, Relaxed);
        (next, armed) = engine.thread_turn(false);
    }
    system.now_ns.load(Relaxed) - polled
}

/// No local poll waits for peers' operations on open memory: the thread sleeps on the descriptors
/// from 1 ms after the last poll, not after a tick and the rest of another.
#[test]
fn memory_open_to_peers_is_served_a_millisecond_after_the_last_poll() {
    let (engine, system, _) = engine(1);
    let mut memory = [0u8; 64];
    let mut region = Region {
        key: 1,
        base: memory.as_mut_ptr(),
        len: memory.len(),
        virt_addr: false,
        readable: false,
        writable: false,
    };
    engine.mr_open(&region).unwrap();
    assert!(unserved_ns(&engine, &system, 0) >= 10_000_000);
    assert_eq!(system.alarms.load(Relaxed), 0, "it is this process's own");
    (region.key, region.readable) = (2, true);
    engine.mr_open(&region).unwrap();
    assert_eq!(system.alarms.load(Relaxed), 1, "the thread may sleep");
    for before_ns in [0, 1_000, 500_000, 999_000, 1_000_000] {
        let unserved = unserved_ns(&engine, &system, before_ns);
        assert!(unserved <= 1_000_001, "{unserved} ns");
    }
    (region.key, region.readable, region.writable) = (3, false, true);
    engine.mr_open(&region).unwrap();
    engine.mr_close(2);
    assert!(unserved_ns(&engine, &system, 0) <= 1_000_001);
    engine.mr_close(3);
    assert!(unserved_ns(&engine, &system, 0) >= 10_000_000);
    assert_eq!(system.alarms.load(Relaxed), 1);
}

/// A program that has the response to its last remote operation is not waiting: MPICH polls twice
/// more before a flush returns, and repeated polls would delay its next operation.
#[test]
fn polls_after_the_last_response_poll_once() {
    let (engine, system, polls) = engine(1);
    let ep = endpoint(&engine);
    let looks = || {
        let before = polls[0].load(Relaxed);
        engine.progress();
        polls[0].load(Relaxed) - before
    };
    // No other process wants the core, and packets arrive often.
    while system.yields.load(Relaxed) < 6 {
        looks();
    }
    system.finds.store(8, Relaxed);
    (0..8).for_each(|_| assert!(looks() > 0));
    assert_eq!(looks(), 8, "who waits looks again");
    let mut memory = [0u8; 8];
    let region = Region {
        key: 1,
        base: memory.as_mut_ptr(),
        len: memory.len(),
        virt_addr: false,
        readable: true,
        writable: true,
    };
    engine.mr_open(&region).unwrap();
    let mut from = [7u8; 8];
    let iov = [IoVec {
        base: from.as_mut_ptr(),
        len: from.len(),
    }];
    let put = RemoteReq {
        dest: 0,
        iov: &iov,
        remote: &[(0, 8, 1)],
        data: None,
        context: 0,
        flags: OpFlags::default(),
    };
    engine.put(ep, &put).unwrap();
    assert_eq!(memory, from);
    // The poll that receives the response, and two more.
    let counts: Vec<u64> = (0..4).map(|_| looks()).collect();
    assert_eq!(counts, [8, 1, 1, 8]);
    engine.ep_close(ep);
}
