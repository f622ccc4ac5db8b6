//! Transfers between application memory and datagrams.

use super::udp_io::{cut_control, message, Control, RECV_BUFFER_LEN, SEND_FLAGS};
use super::{check_long, Errno, RecvBuffers, SockName, Socket};
use crate::remote_write::{Piece, Write};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Most pieces of one write; a write of more pieces counts as lost and is sent again in packets.
/// (The API accepts eight.)
const PIECES_MAX: usize = 16;

/// Memory into which bytes are received.
#[derive(Debug)]
pub struct Place<'a> {
    /// Address. The owner that registered the memory guarantees its validity until it ends the
    /// registration ([`crate::RemoteWrite::register`], [`crate::RemoteWrite::deregister`]).
    pub(crate) base: usize,
    /// Bytes.
    pub(crate) len: usize,
    /// Lives as long as the lock of its `Registrations` is held.
    pub(crate) held: PhantomData<&'a ()>,
}

impl Place<'_> {
    /// Copies as many bytes into the place as fit, as the kernel would; for rails without a kernel.
    pub fn fill(&self, bytes: &[u8]) {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.base);
        // SAFETY: only `Registrations::land` hands out places: registered memory, valid by the
        // promise of `crate::RemoteWrite::register`'s caller, and not deregistered while its lock
        // is held.
        unsafe { to.copy_from(bytes.as_ptr(), bytes.len().min(self.len)) }
    }
}

impl Write<'_> {
    /// Appends the bytes of the pieces to `to`, as the kernel would read them; for rails without a
    /// kernel.
    pub fn read(&self, to: &mut Vec<u8>) {
        for piece in self.pieces {
            // SAFETY: valid memory, by the promise of `crate::RemoteWrite::write`'s caller.
            to.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.base, piece.len) });
        }
    }
}

impl Socket {
    /// Sends a lead followed by pieces of application memory as one super-packet of datagrams of
    /// `segment` bytes to `to` (`None`: the peer of a connected socket).
    pub(crate) fn send_pieces(
        &self,
        to: Option<&SockName>,
        lead: &[u8],
        pieces: &[Piece],
        segment: u16,
    ) -> Result<(), Errno> {
        let mut iov = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; PIECES_MAX + 1];
        let lead = [(lead.as_ptr(), lead.len())];
        let pieces = pieces.iter().map(|piece| (piece.base, piece.len));
        let mut count = 0;
        for (base, len) in lead.into_iter().chain(pieces) {
            let slot = iov.get_mut(count).ok_or(libc::E2BIG)?;
            slot.iov_base = base.cast_mut().cast();
            slot.iov_len = len;
            count += 1;
        }
        let mut control = MaybeUninit::<Control>::uninit();
        let mut header = message();
        if let Some(to) = to {
            header.msg_name = to.as_ptr().cast_mut().cast();
            header.msg_namelen = to.len();
        }
        header.msg_iov = iov.as_mut_ptr();
        header.msg_iovlen = count as _;
        cut_control(&mut header, &mut control, segment);
        // SAFETY: name, lead and control message live until the call returns, the pieces by the
        // promise of `crate::DirectWrite::write_direct`'s caller, and the kernel only reads them.
        let n =
            unsafe { libc::syscall(libc::SYS_sendmsg, self.fd(), &raw const header, SEND_FLAGS) };
        check_long(n).map(|_| ())
    }

    /// Copies the first bytes of the next datagram, which stays in the queue. Returns the number of
    /// bytes.
    #[inline]
    pub(crate) fn peek(&self, to: &mut [u8]) -> Result<usize, Errno> {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: the buffer is valid for its length, and no address is requested.
        check_long(unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                self.fd(),
                to.as_mut_ptr(),
                to.len(),
                libc::MSG_DONTWAIT | libc::MSG_PEEK,
                none,
                none,
            )
        })
    }

    /// Receives the next datagram or GRO batch: `head_len` bytes into the first buffer, the rest
    /// into a place. Returns the total number of bytes, which may exceed the room, and the head.
    pub(crate) fn recv_into<'b>(
        &self,
        buffers: &'b mut RecvBuffers,
        head_len: usize,
        place: &Place<'_>,
    ) -> Result<(usize, &'b [u8]), Errno> {
        let head_len = head_len.min(RECV_BUFFER_LEN);
        let mut iov = [
            libc::iovec {
                iov_base: buffers.get_mut(0).cast(),
                iov_len: head_len,
            },
            libc::iovec {
                iov_base: std::ptr::with_exposed_provenance_mut(place.base),
                iov_len: place.len,
            },
        ];
        let mut header = message();
        header.msg_iov = iov.as_mut_ptr();
        header.msg_iovlen = iov.len() as _;
        // SAFETY: the first buffer is valid for its length; so is the place, by the promise of its
        // owner until its deregistration, which waits for this call (`Registrations`). MSG_TRUNC
        // only makes the kernel return the true length.
        let n = check_long(unsafe {
            libc::syscall(
                libc::SYS_recvmsg,
                self.fd(),
                &raw mut header,
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            )
        })?;
        Ok((n, buffers.get(0, head_len.min(n))))
    }
}
