//! TCP sockets: listening, connecting, and non-blocking transfer.

use super::socket::{class_of, class_option, IPV6_FREEBIND};
use super::{check, check_long, error_queue, name_buffer, Errno, NameBuffer, Place, SockName};
use crate::Piece;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Backlog of connections to accept: the maximum of a default kernel.
const BACKLOG: libc::c_int = 4096;
/// Keep-alive probes start after this many seconds of silence: stateful firewalls may drop idle
/// connections after a minute.
const KEEP_ALIVE_S: libc::c_int = 30;
/// `TCP_RTO_MIN_US` (Linux 6.15), which the libc crate does not define.
const TCP_RTO_MIN_US: libc::c_int = 45;
/// The lowest minimum RTOs in us that kernels with ticks of 1, 4 and 10 ms accept: two ticks. The
/// default of 200 ms would delay a message whose last packet is lost.
const RTO_MIN_US: [libc::c_int; 3] = [2_000, 5_000, 15_000];
/// Most pieces of one call.
pub const IOV_MAX: usize = 18;

/// Options of a TCP socket.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// Local address.
    pub ip: IpAddr,
    /// Scope of a link-local address.
    pub scope_id: u32,
    /// Requested receive buffer in bytes; 0: autotuned by the kernel.
    pub receive_bytes: usize,
    /// Requested send buffer in bytes; 0: autotuned by the kernel.
    pub send_bytes: usize,
    /// Differentiated services code point of all packets, 0 to 63 (RFC 2474).
    pub dscp: u8,
    /// The kernel drops a connection whose bytes stay unacknowledged for this many ms.
    pub user_timeout_ms: u32,
    /// Maximum segment size in bytes, both ways; 0: derived from the MTUs of both ends.
    pub segment_max: u16,
}

/// A non-blocking TCP socket.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
}

impl Stream {
    fn open(options: &StreamOptions) -> Result<Stream, Errno> {
        let family = match options.ip {
            IpAddr::V4(_) => libc::AF_INET,
            IpAddr::V6(_) => libc::AF_INET6,
        };
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket takes no pointers.
        let fd = check(unsafe { libc::socket(family, kind, 0) })?;
        // SAFETY: the descriptor is new and owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let stream = Stream { fd };
        // (Connections that a listener accepts inherit it.)
        let (level, option) = class_option(options.ip.is_ipv6());
        stream.set(level, option, class_of(options.dscp))?;
        stream.tune(options);
        Ok(stream)
    }

    /// Sets optional parameters for low latency and early failure.
    pub fn tune(&self, options: &StreamOptions) {
        let buffers = [
            (libc::SO_RCVBUF, options.receive_bytes),
            (libc::SO_SNDBUF, options.send_bytes),
        ];
        for (option, bytes) in buffers.into_iter().filter(|(_, bytes)| *bytes > 0) {
            let value = bytes.min(i32::MAX as usize / 2) as libc::c_int;
            let _ = self.set(libc::SOL_SOCKET, option, value);
        }
        let timeout = options.user_timeout_ms.min(i32::MAX as u32) as libc::c_int;
        let settings = [
            (libc::SOL_TCP, libc::TCP_MAXSEG, options.segment_max.into()),
            (libc::SOL_TCP, libc::TCP_NODELAY, 1),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (libc::SOL_TCP, libc::TCP_KEEPIDLE, KEEP_ALIVE_S),
            (libc::SOL_TCP, libc::TCP_KEEPINTVL, KEEP_ALIVE_S),
            (libc::SOL_TCP, libc::TCP_USER_TIMEOUT, timeout),
            (libc::SOL_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS, 1),
        ];
        for (level, option, value) in settings.into_iter().filter(|(_, _, value)| *value > 0) {
            let _ = self.set(level, option, value);
        }
        // A kernel with this option also limits delayed acks to this time, which avoids spurious
        // retransmissions.
        let mut times = RTO_MIN_US.into_iter();
        times.any(|time| self.set(libc::SOL_TCP, TCP_RTO_MIN_US, time).is_ok());
    }

    /// Listens on a port of the address (0: any) and returns the port.
    pub fn listen(
        options: &StreamOptions,
        port: u16,
    ) -> Result<(Stream, u16), (&'static str, Errno)> {
        let stream = Stream::open(options).map_err(|e| ("socket", e))?;
        // Allows a port that is still in TIME_WAIT from an earlier life.
        let _ = stream.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
        let bound = match stream.bind(options, port) {
            // As with UDP: a fresh IPv6 address during duplicate address detection.
            Err(libc::EADDRNOTAVAIL) if options.ip.is_ipv6() => stream
                .set(libc::SOL_IPV6, IPV6_FREEBIND, 1)
                .and_then(|()| stream.bind(options, port)),
            other => other,
        };
        bound.map_err(|e| ("bind", e))?;
        // SAFETY: listen takes no pointers.
        check(unsafe { libc::listen(stream.fd(), BACKLOG) }).map_err(|e| ("listen", e))?;
        let local = stream.local_port().map_err(|e| ("getsockname", e))?;
        Ok((stream, local))
    }

    /// Starts to connect from the local address to another; [`Stream::connected`] returns the
    /// result once the socket is writable.
    pub fn connect(options: &StreamOptions, ip: &IpAddr, port: u16) -> Result<Stream, Errno> {
        let stream = Stream::open(options)?;
        // Choose the port only when the destination is known, so that all ports are available for
        // each peer.
        let _ = stream.set(libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        stream.keep_errors(true);
        stream.bind(options, 0)?;
        let name = SockName::new(ip, port, options.scope_id);
        // SAFETY: the name is valid for its length.
        match check(unsafe { libc::connect(stream.fd(), name.as_ptr(), name.len()) }) {
            Ok(_) | Err(libc::EINPROGRESS | libc::EINTR) => Ok(stream),
            Err(errno) => Err(errno),
        }
    }

    /// The next connection to this listener.
    pub fn accept(&self) -> Result<Stream, Errno> {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let (name, len) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: no address is requested.
        let fd = check(unsafe { libc::accept4(self.fd(), name, len, flags) })?;
        // SAFETY: the descriptor is new and owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Stream { fd })
    }

    fn bind(&self, options: &StreamOptions, port: u16) -> Result<(), Errno> {
        let name = SockName::new(&options.ip, port, options.scope_id);
        // SAFETY: the name is valid for its length.
        check(unsafe { libc::bind(self.fd(), name.as_ptr(), name.len()) }).map(|_| ())
    }

    fn local_port(&self) -> Result<u16, Errno> {
        let mut name = name_buffer();
        let mut len = size_of_val(&name) as libc::socklen_t;
        // SAFETY: `name` is valid for `len` bytes.
        check(unsafe { libc::getsockname(self.fd(), (&raw mut name).cast(), &mut len) })?;
        Ok(u16::from_be(name.sin6_port))
    }

    /// Completes a connection attempt once the socket is writable: the errno, or 0. `ECONNREFUSED`
    /// is reported only if the destination host itself refused; a refusal by another host counts as
    /// unreachable. (Kernels before Linux 5.18 do not tell which host refused.)
    pub fn connected(&self) -> Errno {
        let errno = self.get(libc::SOL_SOCKET, libc::SO_ERROR);
        match errno.unwrap_or_else(|errno| errno) {
            libc::ECONNREFUSED => match error_queue::take(self.fd()) {
                Some(report) if !report.is_by_destination() => libc::EHOSTUNREACH,
                _ => libc::ECONNREFUSED,
            },
            errno => {
                self.keep_errors(false);
                errno
            }
        }
    }

    /// Queues ICMP errors for later reading. (With this, an ICMP error also ends an established
    /// connection.)
    fn keep_errors(&self, keep: bool) {
        let levels = [
            (libc::SOL_IP, libc::IP_RECVERR),
            (libc::SOL_IPV6, libc::IPV6_RECVERR),
        ];
        for (level, option) in levels {
            let _ = self.set(level, option, keep.into()); // fails for the other IP version
        }
    }

    fn get(&self, level: libc::c_int, option: libc::c_int) -> Result<libc::c_int, Errno> {
        let mut value: libc::c_int = 0;
        let mut len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: each option requested here is one int, which `value` is.
        check(unsafe {
            libc::getsockopt(self.fd(), level, option, (&raw mut value).cast(), &mut len)
        })?;
        Ok(value)
    }

    /// Returns whether bytes that were sent are not acknowledged by the other end's kernel yet.
    pub fn is_unacknowledged(&self) -> bool {
        let mut bytes: libc::c_int = 0;
        // SAFETY: SIOCOUTQ (the same number as TIOCOUTQ) writes one int.
        let result = unsafe { libc::ioctl(self.fd(), libc::TIOCOUTQ, &raw mut bytes) };
        result == 0 && bytes > 0
    }

    /// Maximum segment size in bytes; 0 if the kernel does not know it.
    pub fn segment_max(&self) -> usize {
        self.get(libc::SOL_TCP, libc::TCP_MAXSEG)
            .map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0))
    }

    /// Address of the other end.
    pub fn remote_ip(&self) -> Option<IpAddr> {
        let mut name = name_buffer();
        let mut len = size_of_val(&name) as libc::socklen_t;
        // SAFETY: `name` is valid for `len` bytes.
        check(unsafe { libc::getpeername(self.fd(), (&raw mut name).cast(), &mut len) }).ok()?;
        ip_of(&name)
    }

    /// Address of this end.
    pub fn local_ip(&self) -> Option<IpAddr> {
        let mut name = name_buffer();
        let mut len = size_of_val(&name) as libc::socklen_t;
        // SAFETY: `name` is valid for `len` bytes.
        check(unsafe { libc::getsockname(self.fd(), (&raw mut name).cast(), &mut len) }).ok()?;
        ip_of(&name)
    }

    /// Closes the sending direction; received bytes can still be read.
    pub fn finish(&self) {
        // SAFETY: shutdown takes no pointers.
        unsafe { libc::shutdown(self.fd(), libc::SHUT_WR) };
    }

    /// Ends the connection in both directions; the other end's reads report it.
    pub fn shut(&self) {
        // SAFETY: shutdown takes no pointers.
        unsafe { libc::shutdown(self.fd(), libc::SHUT_RDWR) };
    }

    /// Sends as much of the first [`IOV_MAX`] pieces as there is room for; returns the number of
    /// bytes. The caller guarantees that the memory is valid.
    #[inline]
    pub(crate) fn send(&self, pieces: &[Piece]) -> Result<usize, Errno> {
        let mut iov = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; IOV_MAX];
        let mut count = 0;
        for (slot, piece) in iov.iter_mut().zip(pieces) {
            slot.iov_base = piece.base.cast_mut().cast();
            slot.iov_len = piece.len;
            count += 1;
        }
        let mut header = super::udp_io::message();
        header.msg_iov = iov.as_mut_ptr();
        header.msg_iovlen = count as _;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the caller promises valid pieces, and the kernel only reads.
        check_long(unsafe { libc::syscall(libc::SYS_sendmsg, self.fd(), &raw const header, flags) })
    }

    /// Receives available bytes; returns their number, 0 if the other end has closed.
    #[inline]
    pub(crate) fn recv(&self, to: &mut [u8]) -> Result<usize, Errno> {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the buffer is valid for its length; no address is requested.
        check_long(unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                self.fd(),
                to.as_mut_ptr(),
                to.len(),
                libc::MSG_DONTWAIT,
                none,
                none,
            )
        })
    }

    /// Receives into registered memory and the bytes after it into `more`, as [`Stream::recv`].
    #[inline]
    pub(crate) fn recv_place(&self, place: &Place<'_>, more: &mut [u8]) -> Result<usize, Errno> {
        let base = std::ptr::with_exposed_provenance_mut::<u8>(place.base);
        let mut iov =
            [(base, place.len), (more.as_mut_ptr(), more.len())].map(|(base, len)| libc::iovec {
                iov_base: base.cast(),
                iov_len: len,
            });
        let mut header = super::udp_io::message();
        (header.msg_iov, header.msg_iovlen) = (iov.as_mut_ptr(), iov.len() as _);
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: the memory's owner promised a valid place until its key ends, which waits for the
        // lock that a place holds; `more` is valid for its length.
        check_long(unsafe { libc::syscall(libc::SYS_recvmsg, self.fd(), &raw mut header, flags) })
    }

    /// The descriptor.
    #[inline]
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn set(&self, level: i32, option: i32, value: libc::c_int) -> Result<(), Errno> {
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: `value` is one int, as all options set here take.
        check(unsafe { libc::setsockopt(self.fd(), level, option, (&raw const value).cast(), len) })
            .map(|_| ())
    }
}

/// Maximum of open descriptors of this process.
pub(crate) fn descriptors_max() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call only writes the limit.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        _ => 0,
    }
}

/// The IP address in a name that the kernel filled.
fn ip_of(name: &NameBuffer) -> Option<IpAddr> {
    match name.sin6_family as libc::c_int {
        // `sockaddr_in` has the address where `sockaddr_in6` has the flow label.
        libc::AF_INET => Some(IpAddr::from(name.sin6_flowinfo.to_ne_bytes())),
        libc::AF_INET6 => Some(IpAddr::from(name.sin6_addr.s6_addr)),
        _ => None,
    }
}
