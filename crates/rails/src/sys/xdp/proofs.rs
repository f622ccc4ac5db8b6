//! Facts from the kernel on descriptors of other processes, and the numbers of groups.

use crate::sys::{check, Errno};
use std::ffi::CString;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Room for a group's members and other texts.
const GROUP_ROOM: usize = 64 * 1024;

/// The number of the network namespace of a socket, unlike those of all others since the start
/// (Linux 5.14).
pub(crate) fn network_of(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut cookie = 0u64;
    // SAFETY: the option fills eight bytes.
    unsafe { option(socket, libc::SO_NETNS_COOKIE, &mut cookie) }?;
    Ok(cookie)
}

/// The address to which a UDP socket is bound; `None` for other descriptors.
pub(crate) fn udp_name(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    let mut protocol: libc::c_int = 0;
    // SAFETY: the option fills an integer.
    unsafe { option(socket, libc::SO_PROTOCOL, &mut protocol) }.ok()?;
    if protocol != libc::IPPROTO_UDP {
        return None;
    }
    let socket = UdpSocket::from(socket.as_fd().try_clone_to_owned().ok()?);
    socket.local_addr().ok()
}

/// # Safety
/// The option fills a `T`, of which any bytes are a valid value.
unsafe fn option<T>(socket: BorrowedFd<'_>, name: libc::c_int, value: &mut T) -> Result<(), Errno> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let (fd, value) = (socket.as_raw_fd(), (value as *mut T).cast());
    // SAFETY: `value` is writable for `len` bytes.
    check(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, value, &mut len) }).map(|_| ())
}

/// The number of the group with a name, or the number that the name is.
pub(crate) fn group_number(name: &str) -> Option<libc::gid_t> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let name = CString::new(name).ok()?;
    // SAFETY: all zeroes are a valid value of this plain structure.
    let mut group: libc::group = unsafe { std::mem::zeroed() };
    let (mut texts, mut found) = (vec![0; GROUP_ROOM], std::ptr::null_mut());
    // SAFETY: the name ends with zero; the buffer is writable for its length, and it, the structure
    // and the pointer outlive the call.
    let failed = unsafe {
        let (texts, room) = (texts.as_mut_ptr(), texts.len());
        libc::getgrnam_r(name.as_ptr(), &mut group, texts, room, &mut found)
    };
    (failed == 0 && !found.is_null()).then_some(group.gr_gid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_udp_socket_proves_its_address() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(udp_name(socket.as_fd()), socket.local_addr().ok());
        let stream = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(udp_name(stream.as_fd()), None);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(udp_name(file.as_fd()), None);
        assert_eq!(network_of(file.as_fd()), Err(libc::ENOTSOCK));
        assert_eq!(network_of(socket.as_fd()), network_of(stream.as_fd()));
    }

    #[test]
    fn groups_have_names_or_numbers() {
        assert_eq!(group_number("root"), Some(0));
        assert_eq!(group_number("1234"), Some(1_234));
        assert_eq!(group_number("no-such-group-here"), None);
    }
}
