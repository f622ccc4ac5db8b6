//! Error queues of sockets: errors of sent packets, and their origin.

use super::udp_io::{fill_recv, message, Control};
use super::{name_buffer, udp_addr, Errno, NameBuffer, Socket};
use crate::addr::UdpAddr;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::RawFd;

/// An entry of an error queue.
#[derive(Clone, Copy, Debug)]
pub struct ErrorReport {
    /// The error.
    pub errno: Errno,
    /// True if the local host reported the error; false for an ICMP message.
    pub local: bool,
    /// Destination of the packet that caused the error.
    pub to: Option<UdpAddr>,
    /// Source of the ICMP message.
    pub from: Option<IpAddr>,
    /// With EMSGSIZE: the MTU in bytes of IP packet.
    pub mtu: usize,
}

impl ErrorReport {
    /// Returns whether the destination host itself reported the error. The destination answers from
    /// the address to which the packet was sent; routers, firewalls and this host use their own
    /// addresses.
    pub fn is_by_destination(&self) -> bool {
        self.to.is_some_and(|to| self.from == Some(to.ip))
    }
}

impl Socket {
    /// Takes one entry off the error queue.
    pub fn take_error(&self) -> Option<ErrorReport> {
        take(self.fd())
    }
}

/// Takes one entry off the error queue of a socket.
pub(super) fn take(fd: RawFd) -> Option<ErrorReport> {
    let mut name = name_buffer();
    let mut control = MaybeUninit::<Control>::uninit();
    let mut byte = 0u8; // of the offending packet, unused
    let mut iov = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let mut header = message();
    fill_recv(&mut header, &mut name, &mut iov, &mut control);
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: all pointers in the header are valid for their lengths during the call.
    if unsafe { libc::recvmsg(fd, &mut header, flags) } < 0 {
        return None;
    }
    let mut report = ErrorReport {
        errno: 0,
        local: false,
        to: udp_addr(&name),
        from: None,
        mtu: 0,
    };
    // SAFETY: the kernel filled the header and the control buffer; each control message's data is
    // as long as its header states, which is checked before it is read.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&header);
        while !at.is_null() {
            let room = (*at).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
            let kind = ((*at).cmsg_level, (*at).cmsg_type);
            let is_error = kind == (libc::SOL_IP, libc::IP_RECVERR)
                || kind == (libc::SOL_IPV6, libc::IPV6_RECVERR);
            let len = size_of::<libc::sock_extended_err>();
            if is_error && room >= len {
                let data = libc::CMSG_DATA(at);
                let error = data.cast::<libc::sock_extended_err>().read_unaligned();
                report.errno = error.ee_errno as Errno;
                report.local = error.ee_origin == libc::SO_EE_ORIGIN_LOCAL;
                report.mtu = error.ee_info as usize;
                // The source address follows, in the length of its family.
                let mut source = name_buffer();
                let bytes = (room - len).min(size_of::<NameBuffer>());
                data.add(len)
                    .copy_to_nonoverlapping((&raw mut source).cast(), bytes);
                report.from = udp_addr(&source).map(|addr| addr.ip);
            }
            at = libc::CMSG_NXTHDR(&header, at);
        }
    }
    Some(report)
}
