//! Sending and receiving on a UDP socket, with the control messages that carry segment sizes and
//! drop counts.
//!
//! The calls of every packet and every poll bypass libc's wrappers. The wrappers are cancellation
//! points: in a process with several threads each call enables and disables asynchronous
//! cancellation, which costs time, and no thread that calls this crate is ever cancelled.

use super::{check, check_long, name_buffer, udp_addr, Errno, NameBuffer, SockName, Socket};
use crate::addr::UdpAddr;
use std::mem::MaybeUninit;

/// Most datagrams (or GRO batches) of one receive call.
pub const RECV_BATCH: usize = 8;
/// Bytes of one receive buffer: a GRO batch is limited by the IP length field.
pub(super) const RECV_BUFFER_LEN: usize = 64 * 1024;
/// Most messages of one `sendmmsg`.
const SEND_BATCH: usize = 64;
/// Receive buffers begin on a page, so that payload offsets keep their alignment.
const PAGE: usize = 4096;

/// Flags of every send.
pub(super) const SEND_FLAGS: libc::c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
/// With this flag the kernel looks up the route without sending; MSG_CONFIRM then confirms the
/// neighbour entry. (The C library has another name for the same bit.)
const MSG_PROBE: libc::c_int = 0x10;

/// Room for the control messages of one received datagram: segment size and drop count take 24
/// bytes each; an extended error with its source address 72.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control([u8; 128]);

/// Receive buffers, allocated once.
pub struct RecvBuffers {
    memory: Vec<u8>,
    start: usize,
}

impl RecvBuffers {
    /// Reserves the buffers; untouched buffers cost no memory.
    pub fn new() -> RecvBuffers {
        let memory = vec![0; RECV_BATCH * RECV_BUFFER_LEN + PAGE];
        let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
        RecvBuffers { memory, start }
    }

    pub(super) fn get(&self, index: usize, len: usize) -> &[u8] {
        let at = self.start + index * RECV_BUFFER_LEN;
        &self.memory[at..at + len.min(RECV_BUFFER_LEN)]
    }

    pub(super) fn get_mut(&mut self, index: usize) -> *mut u8 {
        let at = self.start + index * RECV_BUFFER_LEN;
        self.memory[at..at + RECV_BUFFER_LEN].as_mut_ptr()
    }
}

impl Default for RecvBuffers {
    fn default() -> RecvBuffers {
        RecvBuffers::new()
    }
}

/// A datagram or GRO batch as it arrived.
pub struct Datagram<'a> {
    /// Source.
    pub from: Option<UdpAddr>,
    /// Payload.
    pub bytes: &'a [u8],
    /// Segment size of a GRO batch.
    pub segment: Option<usize>,
    /// Packets that the socket has dropped so far for want of buffer; wraps.
    pub drops: Option<u32>,
}

/// An empty message header.
pub(super) fn message() -> libc::msghdr {
    // SAFETY: msghdr is plain data for which all zeroes (null pointers, no lengths) is valid.
    unsafe { std::mem::zeroed() }
}

/// Adds a control message that makes the kernel cut the message into datagrams of `segment` bytes
/// (GSO).
#[inline]
pub(super) fn cut_control(
    message: &mut libc::msghdr,
    control: &mut MaybeUninit<Control>,
    segment: u16,
) {
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute; CMSG_FIRSTHDR points into the control
    // buffer, which is aligned and large enough for one header and a u16.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(2) as _;
        let header = libc::CMSG_FIRSTHDR(message);
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        (*header).cmsg_len = libc::CMSG_LEN(2) as _;
        libc::CMSG_DATA(header)
            .cast::<u16>()
            .write_unaligned(segment);
    }
}

impl Socket {
    /// Sends `bytes` to `to` (`None`: the peer of a connected socket); with `segment`, the kernel
    /// cuts them into datagrams of that size.
    #[inline]
    pub(crate) fn send(
        &self,
        to: Option<&SockName>,
        bytes: &[u8],
        segment: Option<u16>,
    ) -> Result<(), Errno> {
        let (name, name_len) = match to {
            Some(name) => (name.as_ptr(), name.len()),
            None => (std::ptr::null(), 0),
        };
        if let Some(segment) = segment {
            return self.send_cut(name, name_len, bytes, segment);
        }
        // SAFETY: name and buffer live until the call returns, and the kernel only reads them.
        let n = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                self.fd(),
                bytes.as_ptr(),
                bytes.len(),
                SEND_FLAGS,
                name,
                name_len as usize,
            )
        };
        check_long(n).map(|_| ())
    }

    /// Confirms the neighbour entry of an address whose packets are known to arrive. The kernel
    /// then need not probe the neighbour, whose answer would have to arrive on the same rail. Sends
    /// nothing. (Kernels without support use their own reachability detection.)
    pub(crate) fn confirm(&self, to: &SockName) {
        let flags = SEND_FLAGS | libc::MSG_CONFIRM | MSG_PROBE;
        // SAFETY: the name lives until the call returns, the buffer is empty, and the kernel reads
        // no more.
        unsafe { libc::sendto(self.fd(), std::ptr::null(), 0, flags, to.as_ptr(), to.len()) };
    }

    /// Sends `bytes`, which the kernel cuts into datagrams of `segment` bytes.
    fn send_cut(
        &self,
        name: *const libc::sockaddr,
        name_len: libc::socklen_t,
        bytes: &[u8],
        segment: u16,
    ) -> Result<(), Errno> {
        let mut iov = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let mut control = MaybeUninit::<Control>::uninit();
        let mut message = message();
        message.msg_name = name.cast_mut().cast();
        message.msg_namelen = name_len;
        message.msg_iov = &mut iov;
        message.msg_iovlen = 1;
        cut_control(&mut message, &mut control, segment);
        // SAFETY: name, buffer and control message live until the call returns, and the kernel
        // only reads them.
        let n =
            unsafe { libc::syscall(libc::SYS_sendmsg, self.fd(), &raw const message, SEND_FLAGS) };
        check_long(n).map(|_| ())
    }

    /// Sends `bytes` as datagrams of `segment` bytes with sendmmsg instead of GSO. Returns the
    /// number of bytes sent before an error, and the error.
    pub(crate) fn send_each(
        &self,
        to: &SockName,
        bytes: &[u8],
        segment: usize,
    ) -> (usize, Result<(), Errno>) {
        let mut done = 0;
        for group in bytes.chunks(segment * SEND_BATCH) {
            let mut iovs = [libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            }; SEND_BATCH];
            let mut headers = [libc::mmsghdr {
                msg_hdr: message(),
                msg_len: 0,
            }; SEND_BATCH];
            let mut count = 0;
            for (part, (iov, header)) in
                group.chunks(segment).zip(iovs.iter_mut().zip(&mut headers))
            {
                iov.iov_base = part.as_ptr().cast_mut().cast();
                iov.iov_len = part.len();
                header.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
                header.msg_hdr.msg_namelen = to.len();
                header.msg_hdr.msg_iov = iov;
                header.msg_hdr.msg_iovlen = 1;
                count += 1;
            }
            // SAFETY: the first `count` headers point at names and buffers that live until the
            // call returns, and the kernel only reads those.
            let rc =
                unsafe { libc::sendmmsg(self.fd(), headers.as_mut_ptr(), count, SEND_FLAGS as _) };
            match check(rc) {
                Err(errno) => return (done, Err(errno)),
                Ok(n) => {
                    done += (n as usize * segment).min(group.len());
                    if (n as libc::c_uint) < count {
                        return (done, Err(libc::EAGAIN));
                    }
                }
            }
        }
        (done, Ok(()))
    }

    /// Receives one datagram or GRO batch without segment size and source; `None` if it did not
    /// fit.
    #[inline]
    pub fn recv_plain<'b>(&self, buffers: &'b mut RecvBuffers) -> Result<Option<&'b [u8]>, Errno> {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the buffer is valid for its length, and no address is requested. MSG_TRUNC only
        // makes the kernel return the true length.
        let n = check_long(unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                self.fd(),
                buffers.get_mut(0),
                RECV_BUFFER_LEN,
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                none,
                none,
            )
        })?;
        Ok((n <= RECV_BUFFER_LEN).then(|| buffers.get(0, n)))
    }

    /// Receives one datagram or GRO batch with all metadata.
    #[inline]
    pub fn recv_one<'b>(
        &self,
        buffers: &'b mut RecvBuffers,
    ) -> Result<Option<Datagram<'b>>, Errno> {
        let mut name = name_buffer();
        let mut control = MaybeUninit::<Control>::uninit();
        let mut iov = libc::iovec {
            iov_base: buffers.get_mut(0).cast(),
            iov_len: RECV_BUFFER_LEN,
        };
        let mut header = message();
        fill_recv(&mut header, &mut name, &mut iov, &mut control);
        // SAFETY: all pointers in the header are valid for their lengths during the call.
        let n = check_long(unsafe {
            libc::syscall(
                libc::SYS_recvmsg,
                self.fd(),
                &raw mut header,
                libc::MSG_DONTWAIT,
            )
        })?;
        // SAFETY: the kernel filled the header and the control buffer, which still lives.
        Ok(unsafe { read_datagram(&header, &name, buffers.get(0, n)) })
    }

    /// Receives up to [`RECV_BATCH`] datagrams in one call; returns their number.
    pub fn recv_many(
        &self,
        buffers: &mut RecvBuffers,
        each: &mut dyn FnMut(Datagram<'_>),
    ) -> Result<usize, Errno> {
        let mut names = [name_buffer(); RECV_BATCH];
        let mut controls = [MaybeUninit::<Control>::uninit(); RECV_BATCH];
        let mut iovs = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; RECV_BATCH];
        let mut headers = [libc::mmsghdr {
            msg_hdr: message(),
            msg_len: 0,
        }; RECV_BATCH];
        for i in 0..RECV_BATCH {
            iovs[i].iov_base = buffers.get_mut(i).cast();
            iovs[i].iov_len = RECV_BUFFER_LEN;
            fill_recv(
                &mut headers[i].msg_hdr,
                &mut names[i],
                &mut iovs[i],
                &mut controls[i],
            );
        }
        // SAFETY: all pointers in the headers are valid for their lengths during the call, and no
        // timeout is given.
        let n = check_long(unsafe {
            libc::syscall(
                libc::SYS_recvmmsg,
                self.fd(),
                headers.as_mut_ptr(),
                RECV_BATCH,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut::<libc::timespec>(),
            )
        })?;
        for i in 0..n {
            let bytes = buffers.get(i, headers[i].msg_len as usize);
            // SAFETY: the kernel filled these n headers and their control buffers.
            if let Some(datagram) = unsafe { read_datagram(&headers[i].msg_hdr, &names[i], bytes) }
            {
                each(datagram);
            }
        }
        Ok(n)
    }
}

/// Points a header at its buffers.
#[inline]
pub(super) fn fill_recv(
    header: &mut libc::msghdr,
    name: &mut NameBuffer,
    iov: &mut libc::iovec,
    control: &mut MaybeUninit<Control>,
) {
    header.msg_name = (name as *mut NameBuffer).cast();
    header.msg_namelen = size_of::<NameBuffer>() as libc::socklen_t;
    header.msg_iov = iov;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of::<Control>() as _;
}

/// Reads the result of a receive call; `None` for a datagram that did not fit, which our protocol
/// never sends.
///
/// # Safety
/// `header` must have been filled by a receive call that succeeded, and its control buffer live.
#[inline]
unsafe fn read_datagram<'b>(
    header: &libc::msghdr,
    name: &NameBuffer,
    bytes: &'b [u8],
) -> Option<Datagram<'b>> {
    if header.msg_flags & libc::MSG_TRUNC != 0 {
        return None;
    }
    let mut datagram = Datagram {
        from: udp_addr(name),
        bytes,
        segment: None,
        drops: None,
    };
    // SAFETY: the caller guarantees the control buffer; both messages read here carry at least four
    // bytes, which is checked.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(header);
        while !at.is_null() {
            if (*at).cmsg_len as usize >= libc::CMSG_LEN(4) as usize {
                let value = libc::CMSG_DATA(at).cast::<u32>().read_unaligned();
                match ((*at).cmsg_level, (*at).cmsg_type) {
                    (libc::SOL_UDP, libc::UDP_GRO) => datagram.segment = Some(value as usize),
                    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => datagram.drops = Some(value),
                    _ => {}
                }
            }
            at = libc::CMSG_NXTHDR(header, at);
        }
    }
    Some(datagram)
}
