//! All kinds of rails as enums: a well-predicted branch instead of a vtable.
//!
//! A new kind is a variant here, a name in each `forward!`, and a row of [`crate::discover`].

use crate::fault::{Faulty, FaultyRx, FaultyTx};
use crate::interfaces::InterfaceChoice;
use crate::shm::{ShmRail, ShmRx, ShmTx};
use crate::tcp::{TcpRail, TcpRx, TcpTx};
use crate::udp::{self, UdpRail, UdpRx, UdpTx};
use crate::verbs::{self, VerbsRail, VerbsRx, VerbsTx};
use crate::xdp::{XdpRail, XdpRx, XdpTx};
use crate::{
    Armed, BufId, Caps, Connected, DirectWrite, GroupError, GroupLink, Groups, LinkId, Links,
    Piece, Rail, RailEvent, RailRx, RailTx, Read, Received, RemoteRead, RemoteWrite, SendOutcome,
    Staging, TxBuffers, Write,
};
use marline_wire::{RailAddr, RailKind};

/// A rail of any kind.
pub enum AnyRail {
    /// UDP.
    Udp(Box<UdpRail>),
    /// TCP.
    Tcp(Box<TcpRail>),
    /// Shared memory.
    Shm(Box<ShmRail>),
    /// A port of an InfiniBand or RoCE device.
    Verbs(Box<VerbsRail>),
    /// Past the kernel's stack.
    Xdp(Box<XdpRail>),
    /// Another rail with injected faults.
    Faulty(Box<Faulty<AnyRail>>),
}

/// Sending half of a rail of any kind.
#[allow(clippy::large_enum_variant)] // made once and never moved; a box would cost every send
pub enum AnyTx {
    /// UDP.
    Udp(UdpTx),
    /// TCP.
    Tcp(Box<TcpTx>),
    /// Shared memory.
    Shm(Box<ShmTx>),
    /// A port of an InfiniBand or RoCE device.
    Verbs(Box<VerbsTx>),
    /// Past the kernel's stack.
    Xdp(Box<XdpTx>),
    /// Another half with injected faults.
    Faulty(Box<FaultyTx<AnyTx>>),
}

/// Receiving half of a rail of any kind.
pub enum AnyRx {
    /// UDP.
    Udp(UdpRx),
    /// TCP.
    Tcp(TcpRx),
    /// Shared memory.
    Shm(ShmRx),
    /// A port of an InfiniBand or RoCE device.
    Verbs(Box<VerbsRx>),
    /// Past the kernel's stack.
    Xdp(Box<XdpRx>),
    /// Another half with injected faults.
    Faulty(Box<FaultyRx<AnyRx>>),
}

impl Rail for AnyRail {
    type Tx = AnyTx;
    type Rx = AnyRx;

    fn split(self) -> (AnyTx, AnyRx) {
        match self {
            AnyRail::Udp(rail) => {
                let (tx, rx) = rail.split();
                (AnyTx::Udp(tx), AnyRx::Udp(rx))
            }
            AnyRail::Tcp(rail) => {
                let (tx, rx) = rail.split();
                (AnyTx::Tcp(Box::new(tx)), AnyRx::Tcp(rx))
            }
            AnyRail::Shm(rail) => {
                let (tx, rx) = rail.split();
                (AnyTx::Shm(Box::new(tx)), AnyRx::Shm(rx))
            }
            AnyRail::Verbs(rail) => {
                let (tx, rx) = rail.split();
                (AnyTx::Verbs(Box::new(tx)), AnyRx::Verbs(Box::new(rx)))
            }
            AnyRail::Xdp(rail) => {
                let (tx, rx) = rail.split();
                (AnyTx::Xdp(Box::new(tx)), AnyRx::Xdp(Box::new(rx)))
            }
            AnyRail::Faulty(rail) => {
                let (tx, rx) = rail.split();
                (AnyTx::Faulty(Box::new(tx)), AnyRx::Faulty(Box::new(rx)))
            }
        }
    }
}

/// The address of a group for rails of a kind; `None` if the kind has no groups. `id` is a random
/// number that the members share, so that two jobs rarely have groups at one address. If two jobs
/// do, each discards the other's packets, which name another group.
pub fn group_addr(kind: RailKind, id: u64) -> Option<RailAddr> {
    udp::group_addr(kind, id).or_else(|| verbs::group_addr(kind, id))
}

/// Implements a trait by forwarding each method to the variant. All methods of these traits are
/// required, so an unlisted method does not compile. Always inlined: an empty poll is mostly calls.
macro_rules! forward {
    (impl $trait:ident for $any:ident $variants:tt
        $($kind:ident fn $name:ident($self:ident $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)?;)*) => {
        impl $trait for $any {
            $(forward!(@$kind $any $variants ($($arg),*)
                $name($self $(, $arg: $ty)*) $(-> $ret)?);)*
        }
    };
    (@ref $any:ident { $($variant:ident),* } $call:tt
        $name:ident($self:ident $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)?) => {
        #[inline(always)]
        fn $name(&$self $(, $arg: $ty)*) $(-> $ret)? {
            match $self { $($any::$variant(half) => half.$name $call,)* }
        }
    };
    (@mut $any:ident { $($variant:ident),* } $call:tt
        $name:ident($self:ident $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)?) => {
        #[inline(always)]
        fn $name(&mut $self $(, $arg: $ty)*) $(-> $ret)? {
            match $self { $($any::$variant(half) => half.$name $call,)* }
        }
    };
}

forward! {
    impl Links for AnyTx { Udp, Tcp, Shm, Verbs, Xdp, Faulty }
    mut fn connect(self, to: &RailAddr) -> Connected;
    mut fn works(self, link: LinkId);
    mut fn silent(self, link: LinkId);
    mut fn reroute(self, link: LinkId) -> bool;
    mut fn close(self, link: LinkId);
}

forward! {
    impl RemoteWrite for AnyTx { Udp, Tcp, Shm, Verbs, Xdp, Faulty }
    mut fn register(self, base: *mut u8, len: usize) -> Option<u64>;
    mut fn deregister(self, key: u64);
    mut fn write(self, link: LinkId, write: &Write<'_>, packet: &[u8]) -> SendOutcome;
}

forward! {
    impl RemoteRead for AnyTx { Udp, Tcp, Shm, Verbs, Xdp, Faulty }
    mut fn advertise(self, base: *const u8, len: usize) -> Option<u64>;
    mut fn open(self, pieces: &[Piece]) -> Option<u64>;
    mut fn read(self, link: LinkId, read: &Read) -> SendOutcome;
}

forward! {
    impl Staging for AnyTx { Udp, Tcp, Shm, Verbs, Xdp, Faulty }
    mut fn stage(self, len: usize) -> Option<u64>;
    ref fn unstage(
        self, key: u64, offset: u64, len: usize, to: &mut dyn FnMut(&[u8])
    ) -> bool;
}

forward! {
    impl DirectWrite for AnyTx { Udp, Tcp, Shm, Verbs, Xdp, Faulty }
    mut fn write_direct(
        self, link: LinkId, write: &Write<'_>, packet: &[u8], segment: usize, flow: u8
    ) -> SendOutcome;
    mut fn seal(self, key: u64, offset: u64, len: u64);
    mut fn damaged(self);
    ref fn landed(self, key: u64, offset: u64, len: u64) -> bool;
}

forward! {
    impl Groups for AnyTx { Udp, Tcp, Shm, Verbs, Xdp, Faulty }
    mut fn join(self, group: &RailAddr) -> Result<GroupLink, GroupError>;
    mut fn leave(self, group: GroupLink);
    mut fn send_group(self, group: GroupLink, bytes: &[u8], segment: usize) -> SendOutcome;
}

forward! {
    impl RailTx for AnyTx { Udp, Tcp, Shm, Verbs, Xdp, Faulty }
    ref fn caps(self) -> Caps;
    ref fn local_addr(self) -> RailAddr;
    mut fn move_to(self, interface: &InterfaceChoice) -> Option<RailAddr>;
    mut fn renamed(self, interface: &str);
    mut fn send(
        self, link: LinkId, bytes: &[u8], segment: usize, flow: u8
    ) -> SendOutcome;
    mut fn poll_event(self) -> Option<RailEvent>;
}

forward! {
    impl TxBuffers for AnyTx { Udp, Tcp, Shm, Verbs, Xdp, Faulty }
    mut fn lend(self) -> Option<BufId>;
    mut fn buffer(self, id: BufId) -> &mut [u8];
    mut fn give_back(self, id: BufId);
    mut fn send_buffer(
        self, link: LinkId, buffer: BufId, len: usize, segment: usize, flow: u8
    ) -> SendOutcome;
    mut fn drain(self);
    ref fn given(self) -> u64;
    mut fn take_done(self) -> u64;
}

forward! {
    impl RailRx for AnyRx { Udp, Tcp, Shm, Verbs, Xdp, Faulty }
    mut fn recv(self, sink: &mut dyn FnMut(Received<'_>)) -> usize;
    mut fn recv_groups(self, sink: &mut dyn FnMut(Received<'_>)) -> usize;
    mut fn recv_rest(self, sink: &mut dyn FnMut(Received<'_>)) -> usize;
    ref fn fd(self) -> Option<i32>;
    mut fn arm(self) -> Armed;
}
