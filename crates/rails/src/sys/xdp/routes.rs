//! The kernel's tables of routes and neighbours, and an interface's Ethernet address.

use crate::sys::{check, check_long, Errno};
use crate::xdp::frames::Mac;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Room for one answer: a route or a neighbour with its attributes has a few hundred bytes.
const ANSWER_MAX: usize = 4096;
/// `ARPHRD_ETHER`.
const ETHERNET: u16 = 1;

/// A socket for questions to the tables.
pub(crate) struct RouteSocket(OwnedFd);

impl RouteSocket {
    /// Opens the socket; needs no privilege.
    pub(crate) fn open() -> Result<RouteSocket, Errno> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: socket takes no pointers.
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(RouteSocket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Asks a question; passes the answer to `read`. The kernel answers during the call.
    pub(crate) fn ask<T>(
        &self,
        question: &[u8],
        read: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let (fd, now) = (self.0.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: the question is valid for its length. Without an address it goes to the kernel.
        let sent = unsafe { libc::send(fd, question.as_ptr().cast(), question.len(), now) };
        check_long(sent as libc::c_long).ok()?;
        let mut answer = [0u8; ANSWER_MAX];
        // SAFETY: the buffer is valid for its length.
        let len = unsafe { libc::recv(fd, answer.as_mut_ptr().cast(), ANSWER_MAX, now) };
        let len = check_long(len as libc::c_long).ok()?;
        read(answer.get(..len)?)
    }
}

/// The Ethernet address of an interface; `None` for another kind of interface.
pub(crate) fn hardware_address(name: &str) -> Option<Mac> {
    // SAFETY: socket takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let fd = check(fd).ok()?;
    // SAFETY: the descriptor is new and has no other owner.
    let control = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: ifreq is plain data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: SIOCGIFHWADDR reads the name and writes the address of the ifreq it is given.
    let asked = unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCGIFHWADDR as _, &mut request) };
    check(asked).ok()?;
    // SAFETY: the call succeeded, so the hardware address is the union's live field.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let bytes = [0, 1, 2, 3, 4, 5].map(|i| address.sa_data[i] as u8);
    (address.sa_family == ETHERNET).then_some(bytes)
}
