//! An AF_XDP socket on one queue of an interface, in copy mode.

use super::memory::Area;
use super::ring::{Consumer, Parts, Producer};
use super::soon::soon;
use crate::sys::{check, check_long, Errno};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// Bytes that the kernel leaves free in front of a received frame (`XDP_PACKET_HEADROOM`).
const KERNEL_HEADROOM: usize = 256;
/// Further bytes, so that a datagram's payload, behind 42 bytes of headers, begins at a multiple of
/// 8 bytes.
const ALIGNMENT: usize = 6;

/// Times that the numbers of frames are halved where the limit on locked memory is small: users
/// without privilege have 8 MiB by default, for all their sockets.
const HALVINGS_MAX: u32 = 2;

/// Fewest frames that can wait on one of several sockets: as long as a process computes for a
/// moment.
const RECEIVE_MIN: u32 = 512;

/// Sizes of a socket's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of a frame's place: 2,048 or one page of 4,096.
    pub(crate) frame_len: u32,
    /// Frames that can wait to be received, a power of two.
    pub(crate) receive: u32,
    /// Frames that can wait to be sent, a power of two.
    pub(crate) send: u32,
}

impl Limits {
    /// The longest frame that fits a place when it is received.
    pub(crate) fn frame_max(&self) -> usize {
        self.frame_len as usize - KERNEL_HEADROOM - ALIGNMENT
    }

    /// The sizes of each of several sockets, which have this much together, or more if there are
    /// many.
    pub(crate) fn of_each(self, sockets: u32) -> Limits {
        let receive = self.receive / sockets.next_power_of_two();
        Limits {
            receive: receive.max(RECEIVE_MIN),
            send: self.send.min(receive.max(RECEIVE_MIN)),
            ..self
        }
    }
}

/// A new socket with its memory and rings.
pub(super) struct Opened {
    pub(super) socket: Arc<XdpSocket>,
    /// Sizes of the memory.
    pub(super) limits: Limits,
    pub(super) memory: Arc<Area>,
    pub(super) received: Consumer<libc::xdp_desc>,
    pub(super) fill: Producer<u64>,
    pub(super) send: Producer<libc::xdp_desc>,
    pub(super) sent: Consumer<u64>,
}

/// A socket and what keeps its rings mapped.
pub(crate) struct XdpSocket {
    fd: OwnedFd,
    _rings: [Area; 4],
}

impl XdpSocket {
    /// Gives memory and rings to a new socket, and binds it to a queue of the interface with this
    /// index. The memory has the sizes of `limits`, or half or a quarter of their numbers, as far
    /// as the process may lock it. The error names the step.
    pub(super) fn set_up(
        fd: OwnedFd,
        (interface, queue): (u32, u32),
        limits: &Limits,
    ) -> Result<Opened, (&'static str, Errno)> {
        let (memory, limits) = what_can_be_locked(&fd, *limits).map_err(|e| ("memory", e))?;
        let frame_len = u64::from(limits.frame_len);
        let rings = Rings::make(&fd, &limits).map_err(|errno| ("rings", errno))?;
        let [rx, tx, fill, done] = rings.areas;
        let (parts_rx, parts_tx) = rings.descriptors;
        let (parts_fill, parts_done) = rings.addresses;
        // SAFETY: the areas live as long as the socket, which both halves keep, and each ring is
        // made once, here.
        let (received, send, mut to_fill, sent) = unsafe {
            (
                Consumer::new(parts_rx),
                Producer::new(parts_tx),
                Producer::new(parts_fill),
                Consumer::new(parts_done),
            )
        };
        (0..u64::from(limits.receive)).for_each(|frame| {
            to_fill.push(frame * frame_len);
        });
        to_fill.publish();
        soon(|| bind(&fd, interface, queue)).map_err(|errno| ("bind", errno))?;
        let socket = Arc::new(XdpSocket {
            fd,
            _rings: [rx, tx, fill, done],
        });
        Ok(Opened {
            socket,
            limits,
            memory: Arc::new(memory),
            received,
            fill: to_fill,
            send,
            sent,
        })
    }

    /// Makes the kernel send the frames of the ring.
    #[inline]
    pub(super) fn wake(&self) -> Result<(), Errno> {
        let (fd, none) = (self.fd(), std::ptr::null());
        // SAFETY: a message of no bytes without address: no pointer is read.
        let sent = unsafe { libc::sendto(fd, none, 0, libc::MSG_DONTWAIT, none.cast(), 0) };
        check_long(sent as libc::c_long).map(|_| ())
    }

    /// Frames that the kernel dropped because no place was free, since the socket was made.
    pub(crate) fn drops(&self) -> u64 {
        // SAFETY: plain data for which all zeroes is a valid value.
        let mut counts: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        // SAFETY: counts, which the option fills.
        match unsafe { get(&self.fd, libc::XDP_STATISTICS, &mut counts) } {
            Ok(()) => counts.rx_dropped + counts.rx_ring_full,
            Err(_) => 0,
        }
    }

    /// The descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The descriptor, borrowed.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens a socket without memory; needs CAP_NET_RAW, which all further steps do not.
pub(crate) fn open_socket() -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_XDP, kind, 0) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes and registers memory of these sizes, or of half or a quarter of them.
fn what_can_be_locked(fd: &OwnedFd, mut limits: Limits) -> Result<(Area, Limits), Errno> {
    let least = limits.receive >> HALVINGS_MAX;
    loop {
        let frames = u64::from(limits.receive + limits.send);
        let memory = Area::anonymous((frames * u64::from(limits.frame_len)) as usize)?;
        match register(fd, &memory, &limits) {
            Err(libc::ENOBUFS | libc::ENOMEM) if limits.receive > least => {
                (limits.receive, limits.send) = (limits.receive / 2, limits.send / 2);
            }
            registered => return registered.map(|()| (memory, limits)),
        }
    }
}

fn register(fd: &OwnedFd, memory: &Area, limits: &Limits) -> Result<(), Errno> {
    // SAFETY: plain data for which all zeroes is a valid value.
    let mut umem: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
    umem.addr = memory.at(0, memory.len()).map_or(0, |at| at as u64);
    umem.len = memory.len() as u64;
    umem.chunk_size = limits.frame_len;
    umem.headroom = ALIGNMENT as u32;
    // SAFETY: the option reads this structure. The memory is only ever accessed frame by frame, by
    // the side that has the frame, and the kernel keeps its pages.
    unsafe { set(fd, libc::XDP_UMEM_REG, &umem) }
}

/// The mapped rings: receive, send, fill, completion.
struct Rings {
    areas: [Area; 4],
    descriptors: (Parts<libc::xdp_desc>, Parts<libc::xdp_desc>),
    addresses: (Parts<u64>, Parts<u64>),
}

impl Rings {
    fn make(fd: &OwnedFd, limits: &Limits) -> Result<Rings, Errno> {
        for (option, size) in [
            (libc::XDP_UMEM_FILL_RING, limits.receive),
            (libc::XDP_UMEM_COMPLETION_RING, limits.send),
            (libc::XDP_RX_RING, limits.receive),
            (libc::XDP_TX_RING, limits.send),
        ] {
            // SAFETY: these options read a number of entries.
            unsafe { set(fd, option, &size) }?;
        }
        // SAFETY: plain data for which all zeroes is a valid value.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        // SAFETY: offsets, which the option fills.
        unsafe { get(fd, libc::XDP_MMAP_OFFSETS, &mut offsets) }?;
        let at = libc::XDP_PGOFF_RX_RING as u64;
        let (rx, parts_rx) = map(fd, at, &offsets.rx, limits.receive)?;
        let at = libc::XDP_PGOFF_TX_RING as u64;
        let (tx, parts_tx) = map(fd, at, &offsets.tx, limits.send)?;
        let at = libc::XDP_UMEM_PGOFF_FILL_RING;
        let (fill, parts_fill) = map(fd, at, &offsets.fr, limits.receive)?;
        let at = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
        let (done, parts_done) = map(fd, at, &offsets.cr, limits.send)?;
        Ok(Rings {
            areas: [rx, tx, fill, done],
            descriptors: (parts_rx, parts_tx),
            addresses: (parts_fill, parts_done),
        })
    }
}

/// Maps a ring of `size` entries.
fn map<T>(
    fd: &OwnedFd,
    at: u64,
    offsets: &libc::xdp_ring_offset,
    size: u32,
) -> Result<(Area, Parts<T>), Errno> {
    let entries_len = size as usize * size_of::<T>();
    let area = Area::of_socket(fd.as_fd(), at, offsets.desc as usize + entries_len)?;
    let place = |offset, len| area.at(offset, len).ok_or(libc::EINVAL);
    let parts = Parts {
        producer: place(offsets.producer, 4)?.cast_const().cast(),
        consumer: place(offsets.consumer, 4)?.cast_const().cast(),
        flags: place(offsets.flags, 4)?.cast_const().cast(),
        entries: place(offsets.desc, entries_len)?.cast(),
        size,
    };
    Ok((area, parts))
}

fn bind(fd: &OwnedFd, interface: u32, queue: u32) -> Result<(), Errno> {
    let name = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: `name` is a valid sockaddr_xdp of `len` bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), len) }).map(|_| ())
}

/// # Safety
/// The option reads a `T`.
unsafe fn set<T>(fd: &OwnedFd, option: libc::c_int, value: &T) -> Result<(), Errno> {
    let (level, len) = (libc::SOL_XDP, size_of::<T>() as libc::socklen_t);
    let value = (value as *const T).cast();
    // SAFETY: `value` is readable for `len` bytes.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, len) }).map(|_| ())
}

/// # Safety
/// The option fills a `T`, of which any bytes are a valid value.
unsafe fn get<T>(fd: &OwnedFd, option: libc::c_int, value: &mut T) -> Result<(), Errno> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let value = (value as *mut T).cast();
    // SAFETY: `value` is writable for `len` bytes.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, value, &mut len) };
    check(result).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_sockets_share_the_memory_of_one() {
        let all = Limits {
            frame_len: 2_048,
            receive: 4_096,
            send: 1_024,
        };
        let of_each = |sockets| {
            let each = all.of_each(sockets);
            (each.receive, each.send)
        };
        assert_eq!(of_each(1), (4_096, 1_024));
        assert_eq!(of_each(3), (1_024, 1_024));
        assert_eq!(of_each(16), (RECEIVE_MIN, RECEIVE_MIN));
    }
}
