//! The models.

use crate::kernel::{self, Desk, Rail, TICK_NS};
use crate::progress::shared::Shared;
use crate::progress::thread::ProgressThread;
use crate::sync::Arc;
use crate::{
    AvId, Completion, CoreConfig, CqId, Engine, EpId, IoVec, LogSink, OpFlags, Parts, RecvReq,
    SendReq, SubmitError, ADDR_UNSPEC,
};
use shuttle::rand::Rng;
use shuttle::scheduler::RandomScheduler;
use shuttle::thread;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Interleavings per test, which take a few seconds.
const ORDERS: usize = 500;

/// Runs a model with this many random interleavings.
fn try_orders(orders: usize, model: impl Fn() + Send + Sync + 'static) {
    run(RandomScheduler::new(orders), model);
}

/// Runs the same interleavings each time, for assertions that hold in likely ones.
fn try_the_same_orders(orders: usize, model: impl Fn() + Send + Sync + 'static) {
    run(RandomScheduler::new_from_seed(1, orders), model);
}

fn run(scheduler: RandomScheduler, model: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10; // as large as the progress thread's
    config.max_steps = shuttle::MaxSteps::FailAfter(1_000_000);
    config.silence_warnings = true; // about values that live for one interleaving
    shuttle::Runner::new(scheduler, config).run(move || {
        model();
        kernel::assert_sound();
    });
}

/// An engine with the progress thread that serves it.
struct Side {
    engine: Engine<Desk>,
    desk: Desk,
    av: AvId,
}

/// An endpoint with a queue.
#[derive(Clone, Copy)]
struct End {
    ep: EpId,
    cq: CqId,
}

/// Source of sent messages; valid for the whole test and never written.
static NUMBERS: [u64; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// Flags for an operation with a completion; `delivered`: at its delivery.
fn complete(delivered: bool) -> OpFlags {
    OpFlags {
        delivery_complete: delivered,
        ..OpFlags::COMPLETION
    }
}

impl Side {
    /// Opens an engine with this many endpoints, served by the thread of `desk`.
    fn open(desk: &Desk, endpoints: usize) -> (Arc<Side>, Vec<End>) {
        let ports = kernel::open_rails();
        let rail = |&port: &usize| (format!("rail{port}"), Rail::new(port));
        let cfg = CoreConfig {
            proto: marline_proto::Config::default(),
            log_bytes: 4 << 20,
            borrow: false,
            aggregate_after: 2,
            rpcs: true,
            mtu: 0,
        };
        let mut random = ports[0] as u64 * 1_000;
        let parts = Parts {
            rails: ports.iter().map(rail).collect(),
            halves: ports.iter().map(|&port| Rail::new(port)).collect(),
            clock: desk.clone(),
            watch: (),
            tick_ns: TICK_NS,
            threaded: true,
            random: Box::new(move || {
                random += 2;
                Ok(random)
            }),
            log: LogSink(Arc::new(|_, _| {})),
        };
        let mut shared = Shared::new(cfg, parts);
        shared.fds = ports.iter().map(|&port| port as i32).collect();
        shared.sleep_event = Some(kernel::event::Event::new().unwrap());
        let shared = Arc::new(shared);
        let registry = desk.0.clone();
        let run = move || kernel::run(&registry);
        desk.0.join(&shared, run).unwrap();
        let engine = Engine { shared };
        let av = engine.av_open();
        let side = Side {
            engine,
            desk: desk.clone(),
            av,
        };
        let ends = (0..endpoints).map(|_| side.end()).collect();
        (Arc::new(side), ends)
    }

    fn end(&self) -> End {
        let (ep, cq) = (self.engine.ep_open().unwrap(), self.engine.cq_open());
        self.engine.ep_bind_av(ep, self.av);
        self.engine.ep_bind_tx_cq(ep, cq);
        self.engine.ep_bind_rx_cq(ep, cq);
        self.engine.ep_enable(ep).unwrap();
        End { ep, cq }
    }

    /// Address of an endpoint of `other` for endpoints here.
    fn meet(&self, other: &Side, end: End) -> u64 {
        let (name, len) = other.engine.ep_name(end.ep).unwrap();
        self.engine.av_insert(self.av, &name[..len]).unwrap()
    }

    /// Sends message `number`, which is also its content, tag and context.
    fn send(&self, end: End, dest: u64, number: usize, flags: OpFlags) -> Result<(), SubmitError> {
        let content = &NUMBERS[number..number + 1];
        self.send_of(end, dest, (number, content), flags)
    }

    /// Sends these words as message `number`.
    fn send_of(
        &self,
        end: End,
        dest: u64,
        (number, words): (usize, &[u64]),
        flags: OpFlags,
    ) -> Result<(), SubmitError> {
        let iov = [IoVec {
            base: words.as_ptr().cast_mut().cast(),
            len: size_of_val(words),
        }];
        let flags = OpFlags {
            inject: !flags.completion,
            ..flags
        };
        self.engine.send(
            end.ep,
            &SendReq {
                dest,
                iov: &iov,
                tag: Some(number as u64),
                data: None,
                context: number,
                flags,
            },
        )
    }

    /// Posts a receive for message `number` from any source.
    fn recv(&self, end: End, number: usize, words: &mut [u64]) {
        let iov = [IoVec {
            base: words.as_mut_ptr().cast(),
            len: size_of_val(words),
        }];
        let req = RecvReq {
            source: ADDR_UNSPEC,
            iov: &iov,
            tag: Some((number as u64, 0)),
            context: number,
            flags: complete(false),
        };
        self.engine.recv(end.ep, &req).unwrap();
    }

    /// Posts receives for the messages from 0 on.
    fn recv_all(&self, end: End, words: &mut [u64]) {
        for (number, word) in words.iter_mut().enumerate() {
            self.recv(end, number, std::slice::from_mut(word));
        }
    }

    /// Reads up to `most` completions and counts each in `seen` by its context.
    fn read(&self, end: End, most: usize, seen: &Seen) -> usize {
        kernel::assert_sound();
        let mut out = [Completion::empty(); 4];
        let read = self.engine.cq_read(end.cq, &mut out[..most]);
        let count = read.unwrap_or_else(|()| {
            let error = self.engine.cq_take_error(end.cq);
            panic!("an operation failed: {error:?} at {} ns", kernel::now_ns())
        });
        for entry in &out[..count] {
            assert_eq!(seen[entry.context].fetch_add(1, Relaxed), 0, "{entry:?}");
        }
        count
    }

    /// Closes an engine without endpoints, like `Engine::close`.
    fn close(&self) {
        self.desk.0.leave(&self.engine.shared);
        self.engine.shared.publish_last();
    }
}

/// Number of completions read, by context.
type Seen = [AtomicUsize];

fn unseen(contexts: usize) -> Arc<Seen> {
    (0..contexts).map(|_| AtomicUsize::new(0)).collect()
}

fn all_seen(seen: &Seen) -> bool {
    seen.iter().all(|count| count.load(Relaxed) == 1)
}

/// An engine with the endpoints that a test uses.
type With<E> = (Arc<Side>, E);

/// Two engines and their thread: the first with this many endpoints, which know the second's by
/// this address.
fn two_sides(endpoints: usize) -> (With<Vec<End>>, With<End>, u64) {
    let desk = Desk(Arc::new(ProgressThread::new().unwrap()));
    let (a, froms) = Side::open(&desk, endpoints);
    let (b, tos) = Side::open(&desk, 1);
    let dest = a.meet(&b, tos[0]);
    ((a, froms), (b, tos[0]), dest)
}

/// Exchanges a message, so that later ones are a packet each and its ack.
fn acquaint((a, from): (&Side, End), (b, to): (&Side, End), dest: u64) {
    let (sent, got, mut word) = (unseen(1), unseen(1), [0]);
    b.recv(to, 0, &mut word);
    a.send(from, dest, 0, complete(true)).unwrap();
    while !all_seen(&sent) || !all_seen(&got) {
        a.read(from, 1, &sent);
        b.read(to, 1, &got);
    }
}

type Thread = thread::JoinHandle<()>;

fn join_all(threads: impl IntoIterator<Item = Thread>) {
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// Two threads of a sender, each with an endpoint and a queue, and two threads of a receiver that
/// share a queue and read one completion at a time; then different threads close everything. Each
/// completion is read once, in whichever thread, and all operations end.
#[test]
fn every_entry_is_read_once_whoever_polls() {
    const EACH: usize = 3;
    try_orders(ORDERS, || {
        let ((a, froms), (b, to), dest) = two_sides(2);
        let got = unseen(2 * EACH);
        let mut buffers = [0; 2 * EACH];
        b.recv_all(to, &mut buffers);
        let senders = froms.into_iter().enumerate().map(|(n, from)| {
            let a = a.clone();
            thread::spawn(move || {
                let sent = unseen(2 * EACH);
                let mine = n * EACH..(n + 1) * EACH;
                for number in mine.clone() {
                    a.send(from, dest, number, complete(false)).unwrap();
                }
                while !all_seen(&sent[mine.clone()]) {
                    a.read(from, 2, &sent);
                }
                a.engine.ep_close(from.ep);
            })
        });
        let readers = (0..2).map(|_| {
            let (b, got) = (b.clone(), got.clone());
            thread::spawn(move || {
                while !all_seen(&got) {
                    b.read(to, 1, &got);
                }
            })
        });
        join_all(senders.chain(readers).collect::<Vec<_>>());
        assert_eq!(buffers, NUMBERS[..2 * EACH]);
        b.engine.ep_close(to.ep);
        let other = thread::spawn(move || a.close());
        b.close();
        other.join().unwrap();
        kernel::close_rails();
    });
}

/// The receiver computes and its progress thread has taken over: each round trip takes less than
/// half a tick. In half of the interleavings the receiver polls again at a random time, possibly
/// while the thread serves it.
#[test]
fn the_thread_answers_for_an_application_that_is_away() {
    const MESSAGES: usize = NUMBERS.len();
    try_orders(ORDERS, || {
        let ((a, froms), (b, to), dest) = two_sides(1);
        let from = froms[0];
        let mut random = shuttle::rand::thread_rng();
        // Two ticks to take over, and one to spare.
        let start = kernel::now_ns() + 3 * TICK_NS;
        let back = random
            .gen_bool(0.5)
            .then(|| start + random.gen_range(0..TICK_NS));
        let delivered = Arc::new(AtomicBool::new(false));
        let (flag, peer) = (delivered.clone(), b.clone());
        let receiver = thread::spawn(move || {
            let got = unseen(MESSAGES);
            let mut buffers = [0; MESSAGES];
            peer.engine.progress();
            peer.recv_all(to, &mut buffers);
            kernel::compute_until(|now| flag.load(Relaxed) || back.is_some_and(|at| now >= at));
            while !all_seen(&got) {
                peer.read(to, 1, &got);
            }
            assert_eq!(buffers, NUMBERS);
            peer.engine.ep_close(to.ep);
        });
        kernel::compute_until(|now| now >= start);
        let sent = unseen(MESSAGES);
        for number in 0..MESSAGES {
            let left = kernel::now_ns();
            a.send(from, dest, number, complete(true)).unwrap();
            while sent[number].load(Relaxed) == 0 {
                a.read(from, 4, &sent);
            }
            let took = kernel::now_ns() - left;
            assert!(took < TICK_NS / 2, "{took} ns");
        }
        delivered.store(true, Relaxed);
        a.engine.ep_close(from.ep);
        receiver.join().unwrap();
        a.close();
        b.close();
        kernel::close_rails();
    });
}

/// A burst whose last sends are coalesced; the sender makes no further call until they have
/// arrived. The alarm has the thread send them long before a tick.
#[test]
fn collected_sends_leave_while_their_sender_is_away() {
    const MESSAGES: usize = 5;
    try_orders(ORDERS, || {
        let ((a, froms), (b, to), dest) = two_sides(1);
        let from = froms[0];
        acquaint((&a, from), (&b, to), dest);
        let come = Arc::new(AtomicBool::new(false));
        let (flag, peer) = (come.clone(), a.clone());
        let sender = thread::spawn(move || {
            for number in 0..MESSAGES {
                peer.send(from, dest, number, OpFlags::default()).unwrap();
            }
            let left = kernel::now_ns();
            kernel::compute_until(|_| flag.load(Relaxed));
            let took = kernel::now_ns() - left;
            assert!(took < TICK_NS / 2, "{took} ns");
            peer.engine.ep_close(from.ep);
        });
        let got = unseen(MESSAGES);
        let mut buffers = [0; MESSAGES];
        b.recv_all(to, &mut buffers);
        while !all_seen(&got) {
            b.read(to, 4, &got);
        }
        come.store(true, Relaxed);
        b.engine.ep_close(to.ep);
        sender.join().unwrap();
        b.close();
        a.close();
        kernel::close_rails();
    });
}

/// A burst of long messages beyond the credit, with computation between them and no poll for three
/// ticks: messages continue to leave, and as the sends poll the rails, the thread stays out of the
/// way.
#[test]
fn a_long_burst_goes_on_leaving_and_the_thread_stays_away() {
    const MESSAGES: usize = 100;
    // Two of them and the work of other threads usually take less than a poll gap.
    const BETWEEN_NS: u64 = TICK_NS / 1_000;
    static LONG: [u64; 8_192] = [7; 8_192];
    try_the_same_orders(ORDERS / 10, || {
        let ((a, froms), (b, to), dest) = two_sides(1);
        let from = froms[0];
        acquaint((&a, from), (&b, to), dest);
        let got = unseen(MESSAGES);
        let (peer, seen) = (b.clone(), got.clone());
        let receiver = thread::spawn(move || {
            let mut buffers = vec![vec![0; LONG.len()]; MESSAGES];
            for (number, words) in buffers.iter_mut().enumerate() {
                peer.recv(to, number, words);
            }
            while !all_seen(&seen) {
                peer.read(to, 4, &seen);
            }
            assert!(buffers.iter().all(|words| words[..] == LONG));
        });
        let takeovers = || a.engine.shared.lock().counters.process.thread_takeovers;
        let before = takeovers();
        for number in 0..MESSAGES {
            let long = (number, &LONG[..]);
            let sent = a.send_of(from, dest, long, complete(false));
            assert_eq!(
                sent,
                Ok(()),
                "the log fills: what was posted does not leave"
            );
            let end = kernel::now_ns() + BETWEEN_NS;
            kernel::compute_until(|now| now >= end);
        }
        // Usually 0, but many if polls by sends do not count as the application's presence.
        let times = takeovers() - before;
        assert!(times <= MESSAGES as u64 / 10, "{times} turns of the thread");
        let come = got.iter().filter(|count| count.load(Relaxed) == 1).count();
        assert!(come > MESSAGES / 4, "{come} have come");
        let sent = unseen(MESSAGES);
        while !all_seen(&sent) || !all_seen(&got) {
            a.read(from, 4, &sent);
        }
        receiver.join().unwrap();
        a.engine.ep_close(from.ep);
        b.engine.ep_close(to.ep);
        a.close();
        b.close();
        kernel::close_rails();
    });
}

/// A thread waits for a completion in its queue while another polls its own: the wait ends long
/// before a tick, whichever thread receives the packets.
#[test]
fn a_wait_ends_though_another_thread_takes_the_packets() {
    try_orders(ORDERS, || {
        let ((a, froms), (b, to), dest) = two_sides(1);
        let (from, other) = (froms[0], b.end());
        let other_dest = a.meet(&b, other);
        acquaint((&a, from), (&b, to), dest);
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let (waiter, then) = (b.clone(), left.clone());
        let waiter = thread::spawn(move || {
            let (got, mut word) = (unseen(1), [0]);
            waiter.recv_all(to, &mut word);
            while !all_seen(&got) {
                waiter.engine.cq_wait(to.cq, -1);
                waiter.read(to, 1, &got);
            }
            let took = kernel::now_ns().saturating_sub(then.load(Relaxed));
            assert!(took < TICK_NS / 2, "{took} ns");
        });
        let poller = b.clone();
        let poller = thread::spawn(move || {
            let (got, mut word) = (unseen(2), [0]);
            poller.recv(other, 1, &mut word);
            while got[1].load(Relaxed) == 0 {
                poller.read(other, 1, &got);
            }
        });
        let sent = unseen(2);
        // Enough for the waiter to fall asleep in most interleavings.
        let start = kernel::now_ns();
        kernel::compute_until(|now| now > start + TICK_NS / 4);
        left.store(kernel::now_ns(), Relaxed);
        a.send(from, dest, 0, complete(true)).unwrap();
        while sent[0].load(Relaxed) == 0 {
            a.read(from, 1, &sent);
        }
        // No packet arrives meanwhile that could wake it.
        let start = kernel::now_ns();
        kernel::compute_until(|now| now > start + TICK_NS);
        a.send(from, other_dest, 1, complete(true)).unwrap();
        while sent[1].load(Relaxed) == 0 {
            a.read(from, 1, &sent);
        }
        join_all([waiter, poller]);
        a.engine.ep_close(from.ep);
        b.engine.ep_close(to.ep);
        b.engine.ep_close(other.ep);
        a.close();
        b.close();
        kernel::close_rails();
    });
}

/// A poll of the rails between two sends receives packets of threads that sleep until one arrives,
/// and wakes them.
#[test]
fn a_poll_between_sends_wakes_sleeping_threads() {
    try_orders(ORDERS / 10, || {
        let ((a, froms), (b, to), dest) = two_sides(1);
        let from = froms[0];
        acquaint((&a, from), (&b, to), dest);
        let shared = &b.engine.shared;
        let (got, sent, mut word) = (unseen(1), unseen(1), [0]);
        b.recv_all(to, &mut word);
        shared.receivers().sleepers += 1;
        a.send(from, dest, 0, complete(true)).unwrap();
        while sent[0].load(Relaxed) == 0 {
            shared.short_poll();
            a.read(from, 1, &sent);
        }
        let called = std::mem::take(&mut shared.receivers().called);
        shared.receivers().sleepers -= 1;
        let by_thread = shared.lock().counters.process.thread_takeovers;
        assert!(
            called,
            "the packets were taken ({by_thread} turns of the thread), nobody called"
        );
        while !all_seen(&got) {
            b.read(to, 1, &got);
        }
        a.engine.ep_close(from.ep);
        b.engine.ep_close(to.ep);
        a.close();
        b.close();
        kernel::close_rails();
    });
}

/// A thread closes an endpoint while another sends on it and a third reads its queue: calls are
/// refused from some moment on, accepted messages arrive, and the close ends. Another endpoint of
/// the engine is undisturbed.
#[test]
fn an_endpoint_is_closed_while_others_use_it() {
    const MESSAGES: usize = 6;
    try_orders(ORDERS, || {
        let ((a, froms), (b, to), dest) = two_sides(2);
        let (closed, stays) = (froms[0], froms[1]);
        let taken = Arc::new(AtomicUsize::new(0));
        let (side, count) = (a.clone(), taken.clone());
        let sender = thread::spawn(move || {
            for number in 1..MESSAGES {
                // In some interleavings a send comes while the close waits for the acks of others.
                (0..shuttle::rand::thread_rng().gen_range(0..100))
                    .for_each(|_| thread::yield_now());
                match side.send(closed, dest, number, complete(false)) {
                    Ok(()) => count.fetch_add(1, Relaxed),
                    Err(SubmitError::Invalid | SubmitError::BadAddress) => return,
                    Err(error) => panic!("{error:?}"),
                };
            }
        });
        let side = a.clone();
        let closer = thread::spawn(move || side.engine.ep_close(closed.ep));
        let side = a.clone();
        let reader = thread::spawn(move || {
            let sent = unseen(MESSAGES);
            side.send(stays, dest, 0, complete(true)).unwrap();
            while sent[0].load(Relaxed) == 0 {
                side.read(closed, 1, &sent);
                side.read(stays, 1, &sent);
            }
            side.engine.ep_close(stays.ep);
        });
        let got = unseen(MESSAGES);
        let mut buffers = [0; MESSAGES];
        b.recv_all(to, &mut buffers);
        while got[0].load(Relaxed) == 0 {
            b.read(to, 4, &got);
        }
        read_during(&b, to, &got, [sender, closer, reader]);
        let (came, taken) = (got[1..].iter(), taken.load(Relaxed));
        let came = came.filter(|count| count.load(Relaxed) == 1).count();
        assert_eq!(came, taken, "messages taken and come");
        b.engine.ep_close(to.ep);
        a.close();
        b.close();
        kernel::close_rails();
    });
}

/// Reads while these threads run, and the rest afterwards.
fn read_during<const N: usize>(side: &Arc<Side>, end: End, seen: &Arc<Seen>, threads: [Thread; N]) {
    let over = Arc::new(AtomicBool::new(false));
    let (flag, reader, counts) = (over.clone(), side.clone(), seen.clone());
    let reader = thread::spawn(move || {
        while !flag.load(Relaxed) {
            reader.read(end, 4, &counts);
        }
    });
    join_all(threads);
    over.store(true, Relaxed);
    reader.join().unwrap();
    while side.read(end, 4, seen) > 0 {}
}
