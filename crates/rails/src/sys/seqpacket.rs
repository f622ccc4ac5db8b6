//! Unix sockets between the processes of one host, which pass descriptors and reveal the end of a
//! process. Their names are abstract, outside any file system, or paths.

use super::{check, check_long, Errno};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Backlog of connections to accept: the system's maximum.
const BACKLOG: libc::c_int = 4096;
/// Most descriptors in one message.
pub(crate) const FDS_MAX: usize = 2;
/// Most groups of a process (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;
/// Room for the control message with the descriptors, aligned as the kernel requires.
type Control = [u64; 8];

/// The process at the other end, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Process id in our namespace; 0 if the process has none there (another container).
    pub(crate) pid: libc::pid_t,
    /// Effective user of the process.
    pub(crate) uid: libc::uid_t,
}

/// A listening or connected non-blocking SOCK_SEQPACKET socket.
pub(crate) struct SeqPacket(OwnedFd);

/// A message: its length and descriptors.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) len: usize,
    pub(crate) fds: Vec<OwnedFd>,
}

fn name_of(name: u64) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: all zeros are a valid address structure.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first byte stays 0: the name is abstract.
    let text = format!("marline-{name:016x}");
    for (to, from) in address.sun_path[1..].iter_mut().zip(text.bytes()) {
        *to = from as libc::c_char;
    }
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + text.len();
    (address, len as libc::socklen_t)
}

fn path_name(path: &Path) -> Result<(libc::sockaddr_un, libc::socklen_t), Errno> {
    // SAFETY: all zeros are a valid address structure.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    // The last byte stays 0.
    if bytes.is_empty() || bytes.contains(&0) || bytes.len() >= address.sun_path.len() {
        return Err(libc::EINVAL);
    }
    for (to, &from) in address.sun_path.iter_mut().zip(bytes) {
        *to = from as libc::c_char;
    }
    Ok((address, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

impl SeqPacket {
    fn new() -> Result<SeqPacket, Errno> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket takes no pointers.
        let fd = check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(SeqPacket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Listens under a name.
    pub(crate) fn listen(name: u64) -> Result<SeqPacket, Errno> {
        let socket = SeqPacket::new()?;
        let (address, len) = name_of(name);
        // SAFETY: the address outlives the call.
        check(unsafe { libc::bind(socket.fd(), (&raw const address).cast(), len) })?;
        // SAFETY: listen takes no pointers.
        check(unsafe { libc::listen(socket.fd(), BACKLOG) })?;
        Ok(socket)
    }

    /// Connects to the listener of a name.
    pub(crate) fn connect(name: u64) -> Result<SeqPacket, Errno> {
        let socket = SeqPacket::new()?;
        let (address, len) = name_of(name);
        // SAFETY: the address outlives the call.
        check(unsafe { libc::connect(socket.fd(), (&raw const address).cast(), len) })?;
        Ok(socket)
    }

    /// Listens at a path, where no file is.
    pub(crate) fn listen_at(path: &Path) -> Result<SeqPacket, Errno> {
        let socket = SeqPacket::new()?;
        let (address, len) = path_name(path)?;
        // SAFETY: the address outlives the call.
        check(unsafe { libc::bind(socket.fd(), (&raw const address).cast(), len) })?;
        // SAFETY: listen takes no pointers.
        check(unsafe { libc::listen(socket.fd(), BACKLOG) })?;
        Ok(socket)
    }

    /// Connects to the listener at a path.
    pub(crate) fn connect_to(path: &Path) -> Result<SeqPacket, Errno> {
        let socket = SeqPacket::new()?;
        let (address, len) = path_name(path)?;
        // SAFETY: the address outlives the call.
        check(unsafe { libc::connect(socket.fd(), (&raw const address).cast(), len) })?;
        Ok(socket)
    }

    /// Waits until a message or the end of the connection can be received, or the time is over.
    pub(crate) fn wait(&self, limit: Duration) {
        let mut poll = libc::pollfd {
            fd: self.fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let limit = limit.as_millis().min(i32::MAX as u128) as libc::c_int;
        // SAFETY: one valid structure, which outlives the call.
        unsafe { libc::poll(&mut poll, 1, limit) };
    }

    /// The next connection to this listener.
    pub(crate) fn accept(&self) -> Result<SeqPacket, Errno> {
        let (none, flags) = (
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
        );
        // SAFETY: no address is requested.
        let fd = check(unsafe { libc::accept4(self.fd(), none, std::ptr::null_mut(), flags) })?;
        // SAFETY: the descriptor is new and has no other owner.
        Ok(SeqPacket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The process at the other end of a connection.
    pub(crate) fn peer(&self) -> Result<Peer, Errno> {
        let mut credentials = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the structure and its length outlive the call.
        check(unsafe {
            libc::getsockopt(
                self.fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut credentials).cast(),
                &mut len,
            )
        })?;
        Ok(Peer {
            pid: credentials.pid,
            uid: credentials.uid,
        })
    }

    /// The groups of the process at the other end: that of its files, and others.
    pub(crate) fn peer_groups(&self) -> Result<Vec<libc::gid_t>, Errno> {
        let mut credentials: [libc::gid_t; 3] = [0; 3];
        let mut len = size_of_val(&credentials) as libc::socklen_t;
        let get = |name, value: *mut libc::gid_t, len: &mut libc::socklen_t| {
            // SAFETY: `value` is writable for `len` bytes. (`ucred` is three numbers, the last of
            // which is the group.)
            check(unsafe { libc::getsockopt(self.fd(), libc::SOL_SOCKET, name, value.cast(), len) })
        };
        get(libc::SO_PEERCRED, credentials.as_mut_ptr(), &mut len)?;
        let mut groups = vec![0; GROUPS_MAX];
        let mut len = size_of_val(groups.as_slice()) as libc::socklen_t;
        get(libc::SO_PEERGROUPS, groups.as_mut_ptr(), &mut len)?;
        groups.truncate(len as usize / size_of::<libc::gid_t>());
        groups.push(credentials[2]);
        Ok(groups)
    }

    /// True if the process at the other end is of this user. Such a process could do as much harm
    /// by other means as by descriptors and shared memory.
    pub(crate) fn is_of_own_user(&self) -> bool {
        self.peer().is_ok_and(|peer| peer.uid == own_uid())
    }

    /// Sends a message with descriptors.
    pub(crate) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        assert!(fds.len() <= FDS_MAX);
        let mut control: Control = [0; 8];
        let mut iov = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: all zeros are a valid message header.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &mut iov;
        header.msg_iovlen = 1;
        if !fds.is_empty() {
            let len = size_of_val(fds) / size_of::<BorrowedFd<'_>>() * size_of::<RawFd>();
            header.msg_control = control.as_mut_ptr().cast();
            // SAFETY: CMSG_SPACE only computes.
            header.msg_controllen = unsafe { libc::CMSG_SPACE(len as libc::c_uint) } as _;
            // SAFETY: the control buffer has room for its header and `FDS_MAX` descriptors.
            unsafe {
                let head = libc::CMSG_FIRSTHDR(&header);
                (*head).cmsg_level = libc::SOL_SOCKET;
                (*head).cmsg_type = libc::SCM_RIGHTS;
                (*head).cmsg_len = libc::CMSG_LEN(len as libc::c_uint) as _;
                let data = libc::CMSG_DATA(head).cast::<RawFd>();
                for (at, fd) in fds.iter().enumerate() {
                    data.add(at).write_unaligned(fd.as_raw_fd());
                }
            }
        }
        // SAFETY: bytes and control message outlive the call, which only reads them.
        let sent = unsafe { libc::sendmsg(self.fd(), &header, libc::MSG_NOSIGNAL) };
        check_long(sent as libc::c_long).map(|_| ())
    }

    /// Receives the next message; one of no bytes means the end of the connection.
    pub(crate) fn recv(&self, to: &mut [u8]) -> Result<Message, Errno> {
        let mut control: Control = [0; 8];
        let mut iov = libc::iovec {
            iov_base: to.as_mut_ptr().cast(),
            iov_len: to.len(),
        };
        // SAFETY: all zeros are a valid message header.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &mut iov;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        // SAFETY: buffer and control message outlive the call.
        let got = unsafe { libc::recvmsg(self.fd(), &mut header, libc::MSG_CMSG_CLOEXEC) };
        let len = check_long(got as libc::c_long)?;
        let mut fds = Vec::new();
        // SAFETY: the kernel has filled header and control message; descriptors in it are new and
        // have no other owner.
        unsafe {
            let mut head = libc::CMSG_FIRSTHDR(&header);
            while !head.is_null() {
                if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
                    let bytes = (*head).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                    let data = libc::CMSG_DATA(head).cast::<RawFd>();
                    for at in 0..bytes / size_of::<RawFd>() {
                        fds.push(OwnedFd::from_raw_fd(data.add(at).read_unaligned()));
                    }
                }
                head = libc::CMSG_NXTHDR(&header, head);
            }
        }
        Ok(Message { len, fds })
    }

    /// Receives the next message without descriptors: the kernel closes those sent with it.
    pub(crate) fn recv_plain(&self, to: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the buffer is valid for its length.
        let got = unsafe { libc::recv(self.fd(), to.as_mut_ptr().cast(), to.len(), 0) };
        check_long(got as libc::c_long)
    }

    /// Ends a connection; the other end notices.
    pub(crate) fn shut(&self) {
        // SAFETY: shutdown takes no pointers.
        unsafe { libc::shutdown(self.fd(), libc::SHUT_RDWR) };
    }

    /// The descriptor, borrowed.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The effective user of this process.
pub(crate) fn own_uid() -> libc::uid_t {
    // SAFETY: geteuid takes no arguments and always succeeds.
    unsafe { libc::geteuid() }
}

/// Identifies the host and the network namespace of this process: the running kernel's boot id, and
/// device and inode of the namespace. Names of sockets are unique within the namespace.
pub(crate) fn host() -> std::io::Result<(String, u64, u64)> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let space = std::fs::metadata("/proc/thread-self/ns/net")?;
    Ok((boot, space.dev(), space.ino()))
}

/// Runs `work` as another user; returns `None` if this process may not change its user (it is not
/// root's).
#[cfg(test)]
pub(crate) fn as_other_user<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    const NOBODY: libc::c_long = 65_534;
    let other = || {
        // SAFETY: the call takes no pointers. Unlike libc's function it changes this thread alone,
        // which ends after the work.
        let done = unsafe { libc::syscall(libc::SYS_setresuid, -1_i64, NOBODY, -1_i64) };
        (done == 0).then(work)
    };
    std::thread::scope(|scope| scope.spawn(other).join().expect("no panic"))
}
