//! Notifications of changed links and addresses.

use super::{check, errno, Errno};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// `RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR`.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

/// A socket that becomes readable when a link or address of this namespace changes.
pub struct ChangeSocket(OwnedFd);

impl ChangeSocket {
    /// Subscribes; needs no privilege.
    pub fn open() -> Result<ChangeSocket, Errno> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket takes no pointers.
        let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
        // SAFETY: the descriptor is new and has no other owner.
        let socket = ChangeSocket(unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: sockaddr_nl is plain data for which all zeroes is a valid value.
        let mut addr: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        addr.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        addr.nl_groups = GROUPS;
        let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: `addr` is a valid sockaddr_nl of `len` bytes.
        check(unsafe { libc::bind(fd, (&raw const addr).cast(), len) })?;
        Ok(socket)
    }

    /// Discards pending notifications. Returns whether there were any. They are not parsed: the
    /// caller reads the present state, which also covers notifications that the kernel dropped.
    pub fn drain(&self) -> bool {
        let mut changed = false;
        let mut byte = 0u8;
        loop {
            // SAFETY: `byte` is valid for the one byte that recv may write; the rest of a
            // notification is truncated.
            let n = unsafe { libc::recv(self.fd(), (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) };
            match if n < 0 { errno() } else { 0 } {
                0 | libc::ENOBUFS => changed = true,
                libc::EINTR => {}
                _ => return changed,
            }
        }
    }

    /// The descriptor, for an epoll set.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
