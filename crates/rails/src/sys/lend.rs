//! Sends without the kernel's copy: pages go into a pipe (vmsplice(2)) and from there, as they are,
//! into a socket (splice(2), which since Linux 6.5 takes pages into UDP packets).

use super::{check, check_long, Errno, Socket};

/// The first kernel whose UDP sockets take pages in one packet, cut or not (MSG_SPLICE_PAGES).
const KERNEL_MIN: (u32, u32) = (6, 5);

/// A pipe that is empty between calls.
pub(crate) struct Pipe {
    read: libc::c_int,
    write: libc::c_int,
}

impl Pipe {
    /// Opens one.
    pub(crate) fn open() -> Result<Pipe, Errno> {
        let mut fds = [-1; 2];
        // SAFETY: the kernel writes two descriptors into the array.
        check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
        let [read, write] = fds;
        Ok(Pipe { read, write })
    }

    /// Sends `bytes` by a connected socket without copying them: their pages are in the packet,
    /// and are read until it is received. An error leaves bytes in the pipe: it is of no use any
    /// more.
    pub(crate) fn send(&self, socket: &Socket, bytes: &[u8]) -> Result<(), Errno> {
        let iov = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let flags = libc::SPLICE_F_NONBLOCK;
        // SAFETY: the kernel only reads the bytes, through references to their pages that it holds
        // as long as it reads; what it reads after this call is for the caller to mind.
        let n = unsafe {
            libc::syscall(
                libc::SYS_vmsplice,
                self.write,
                &raw const iov,
                1usize,
                flags,
            )
        };
        if check_long(n)? != bytes.len() {
            return Err(libc::ENOSPC); // a pipe of fewer buffers than pages
        }
        let nowhere = std::ptr::null_mut::<libc::loff_t>();
        // SAFETY: descriptors that this process owns, and no offsets.
        let n = unsafe {
            libc::syscall(
                libc::SYS_splice,
                self.read,
                nowhere,
                socket.fd(),
                nowhere,
                bytes.len(),
                flags,
            )
        };
        match check_long(n)? {
            n if n == bytes.len() => Ok(()),
            _ => Err(libc::ENOSPC),
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for fd in [self.read, self.write] {
            // SAFETY: a descriptor of our own, closed once.
            unsafe { libc::close(fd) };
        }
    }
}

impl Socket {
    /// From now on what is sent is cut into datagrams of `segment` bytes.
    pub(crate) fn cut_into(&self, segment: u16) -> Result<(), Errno> {
        self.set(libc::SOL_UDP, libc::UDP_SEGMENT, segment.into())
    }
}

/// Whether this kernel takes pages into UDP packets.
pub(crate) fn kernel_takes_pages() -> bool {
    // SAFETY: utsname is plain data for which all zeroes is valid, and the kernel fills it.
    let name = unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&mut name);
        name
    };
    let release: String = name.release.iter().map(|&c| c as u8 as char).collect();
    version(&release).is_some_and(|version| version >= KERNEL_MIN)
}

/// Major and minor number of a release such as `6.1.0-42-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn releases_are_read() {
        assert_eq!(version("6.18.44-fc-v669\0\0"), Some((6, 18)));
        assert_eq!(version("6.1.0-42-amd64"), Some((6, 1)));
        assert_eq!(version("5.15"), Some((5, 15)));
        assert_eq!(version("unknown"), None);
        assert!(version("6.1.0").unwrap() < super::KERNEL_MIN);
    }
}
