//! Receiving half: the choice of the socket to read.

use super::ip_multicast::GroupFeeds;
use super::read::{Feed, Input, Reader};
use super::second_socket::SecondSocket;
use super::shared::Shared;
use crate::sys::SleepSet;
use crate::{Armed, RailRx, Received};
use std::os::fd::RawFd;
use std::sync::Arc;

/// Most batches read in one call from a socket where packets are rare; a longer backlog soon
/// changes which socket is read first.
const REST_MAX: usize = 8;

/// Datagrams after a sleep during which the sockets stay in the epoll set. Each datagram costs a
/// callback in the kernel meanwhile; 64 of them cost about as much as removing and adding the
/// sockets.
const LINGER: usize = 64;

/// The sockets in the epoll set of a sleep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// No socket is in the set.
    No,
    /// All are in the set, for a sleep.
    Asleep,
    /// All sockets are still in the set after a sleep, since the next sleep may follow soon; they
    /// are removed after this many datagrams.
    Awake(usize),
}

/// Receiving half of a [`super::UdpRail`].
pub struct UdpRx {
    shared: Arc<Shared>,
    reader: Reader,
    main: Feed,
    second: Option<Box<SecondSocket>>,
    groups: GroupFeeds,
    /// The set of all sockets for a sleep.
    sleep: Option<SleepSet>,
    /// A descriptor of another kind that ends a sleep too.
    beside: Vec<RawFd>,
    watch: Watch,
}

impl UdpRx {
    pub(super) fn new(
        shared: Arc<Shared>,
        (second, sleep): (Option<Box<SecondSocket>>, Option<SleepSet>),
        cmsg: bool,
        gro: bool,
    ) -> UdpRx {
        UdpRx {
            shared,
            reader: Reader::new(cmsg, gro),
            main: Feed::default(),
            second,
            groups: GroupFeeds::default(),
            sleep,
            beside: Vec::new(),
            watch: Watch::No,
        }
    }

    /// The reader, and the second socket or the main one as its input.
    #[inline]
    fn input(&mut self, second: bool) -> (&mut Reader, Input<'_>) {
        let (socket, feed) = match self.second.as_deref_mut().filter(|_| second) {
            Some(second) => (&*second.socket, &mut second.feed),
            None => (&self.shared.socket, &mut self.main),
        };
        let shared = &*self.shared;
        let input = Input {
            shared,
            socket,
            feed,
        };
        (&mut self.reader, input)
    }

    /// Counts `count` datagrams of the second socket, or takes the source of a datagram of the main
    /// socket as a sample.
    #[inline]
    fn came(&mut self, second: bool, count: usize) {
        match &mut self.second {
            Some(socket) if second && count > 0 => socket.heard(count),
            _ if self.main.source.is_some() => self.sample(),
            _ => {}
        }
    }

    /// The descriptors of the rail's socket and of the second socket; twice the same if there is no
    /// second.
    pub fn sockets(&self) -> [i32; 2] {
        let main = self.shared.socket.fd();
        [
            main,
            self.second
                .as_ref()
                .map_or(main, |second| second.socket.fd()),
        ]
    }

    /// The sockets of [`Self::sockets`] and the descriptors of groups, each once.
    fn all_sockets(&self) -> Vec<RawFd> {
        let [main, second] = self.sockets();
        let second = Some(second).filter(|second| *second != main);
        let own = [main]
            .into_iter()
            .chain(second)
            .chain(self.beside.iter().copied());
        own.chain(self.groups.descriptors()).collect()
    }

    /// Lets a further descriptor end sleeps too, of which the caller reports what it receives
    /// ([`Self::received_beside`]). Returns whether the rail can sleep on several.
    pub(crate) fn sleep_on(&mut self, descriptor: RawFd) -> bool {
        self.beside.push(descriptor);
        self.sleep.is_some()
    }

    /// Counts packets received from the descriptors of `sleep_on`.
    #[inline]
    pub(crate) fn received_beside(&mut self, count: usize) {
        if self.watch == Watch::Asleep {
            self.wake();
        }
        self.note(count);
    }

    /// Reads group sockets: the one that last had packets, or all in turn.
    #[inline]
    fn recv_some_groups(&mut self, all: bool, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.refresh();
        let with = (&*self.shared, &mut self.reader);
        self.groups.recv(with, all, sink)
    }

    /// Counts received datagrams.
    #[inline]
    fn note(&mut self, count: usize) {
        if let (Watch::Awake(left), 1..) = (self.watch, count) {
            self.linger(left, count);
        }
    }

    /// Takes over changes made by the sending half. A socket that was left may live on in another
    /// process and in the epoll set, and a new socket may have its descriptor number.
    #[inline]
    fn refresh(&mut self) {
        if self.groups.is_stale(&self.shared) {
            self.unwatch();
            self.groups.take_over(&self.shared);
        }
    }

    #[cold]
    fn unwatch(&mut self) {
        if self.watch == Watch::Asleep {
            self.groups.wake();
        }
        if self.watch != Watch::No {
            let sockets = self.all_sockets();
            if let Some(sleep) = &mut self.sleep {
                sleep.disarm(&sockets);
            }
        }
        self.watch = Watch::No;
    }

    /// Ends a sleep.
    #[cold]
    fn wake(&mut self) {
        self.groups.wake();
        self.watch = Watch::Awake(LINGER);
    }

    /// Counts received datagrams until the epoll set is emptied.
    #[cold]
    fn linger(&mut self, left: usize, count: usize) {
        self.watch = Watch::Awake(left.saturating_sub(count));
        if left <= count {
            self.unwatch();
        }
    }

    #[cold]
    fn sample(&mut self) {
        if let (Some(second), Some(source)) = (&mut self.second, self.main.source.take()) {
            second.sample(&source);
        }
    }
}

impl RailRx for UdpRx {
    #[inline]
    fn recv(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let mut count;
        loop {
            let second = self.second.as_ref().is_some_and(|second| second.is_first());
            let (reader, mut input) = self.input(second);
            count = reader.recv(&mut input, sink);
            self.came(second, count);
            if count > 0 || !self.second.as_mut().is_some_and(|second| second.on_empty()) {
                break;
            }
        }
        if self.watch == Watch::Asleep {
            self.wake();
        }
        if count == 0 {
            count = self.recv_some_groups(false, sink);
        }
        self.note(count);
        count
    }

    #[inline(never)]
    fn recv_groups(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        if self.watch == Watch::Asleep {
            self.wake();
        }
        let count = self.recv_some_groups(false, sink);
        self.note(count);
        count
    }

    fn recv_rest(&mut self, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        let mut count = self.recv_some_groups(true, sink);
        let Some(second) = self.second.as_ref().filter(|second| second.is_used()) else {
            return count;
        };
        let second = !second.is_first();
        for _ in 0..REST_MAX {
            let (reader, mut input) = self.input(second);
            let more = reader.recv(&mut input, sink);
            self.came(second, more);
            count += more;
            if more == 0 {
                break;
            }
        }
        if let Some(second) = &mut self.second {
            second.waited(count);
        }
        count
    }

    fn fd(&self) -> Option<i32> {
        let both = self.sleep.as_ref().map(SleepSet::fd);
        both.or(Some(self.shared.socket.fd()))
    }

    fn arm(&mut self) -> Armed {
        self.refresh();
        if self.watch == Watch::No {
            let sockets = self.all_sockets();
            if let Some(sleep) = &mut self.sleep {
                sleep.arm(&sockets);
            }
        }
        self.watch = Watch::Asleep;
        if self.groups.arm() {
            return Armed::LookAgain;
        }
        Armed::Sleep
    }
}
