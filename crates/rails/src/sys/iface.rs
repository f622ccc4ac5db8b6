//! Interfaces of this network namespace and what they can do.

use super::{check, errno, Errno};
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddr {
    /// The address.
    pub ip: IpAddr,
    /// Prefix length of the address's subnet.
    pub prefix_len: u8,
    /// Scope of a link-local IPv6 address; otherwise 0.
    pub scope_id: u32,
}

/// The present state of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// The kernel's index, which survives renaming; 0: the interface is gone.
    pub index: u32,
    /// Administratively up.
    pub up: bool,
    /// Has carrier, as far as the driver knows.
    pub running: bool,
    /// Loopback.
    pub loopback: bool,
    /// Largest IP packet in bytes.
    pub mtu: usize,
    /// The interface's IPv4 and IPv6 addresses in the kernel's order.
    pub addrs: Vec<InterfaceAddr>,
}

/// The list of `getifaddrs`, freed on drop.
struct List(*mut libc::ifaddrs);

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a successful getifaddrs and is freed once.
        unsafe { libc::freeifaddrs(self.0) }
    }
}

/// All interfaces, in the kernel's order.
pub fn interfaces() -> Result<Vec<Interface>, Errno> {
    let mut head = std::ptr::null_mut();
    // SAFETY: `head` is a valid place for the pointer that getifaddrs writes.
    check(unsafe { libc::getifaddrs(&mut head) })?;
    let list = List(head);
    let control = control_socket()?;
    let mut found: Vec<Interface> = Vec::new();
    let mut entry = list.0;
    while !entry.is_null() {
        // SAFETY: getifaddrs made a chain of valid entries that ends with null; the list is freed
        // only after this loop.
        let item = unsafe { &*entry };
        // SAFETY: every entry carries a NUL-terminated name.
        let name = unsafe { CStr::from_ptr(item.ifa_name) };
        let at = match found
            .iter()
            .position(|f| f.name.as_bytes() == name.to_bytes())
        {
            Some(at) => at,
            None => {
                found.push(describe(&control, name, item.ifa_flags));
                found.len() - 1
            }
        };
        // SAFETY: address pointers in the list are null or valid for their family.
        found[at].addrs.extend(unsafe { read_addr(item) });
        entry = item.ifa_next;
    }
    Ok(found)
}

/// A socket for interface ioctls.
fn control_socket() -> Result<OwnedFd, Errno> {
    // SAFETY: socket takes no pointers.
    let fd =
        check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) });
    // SAFETY: the descriptor is new and has no other owner.
    fd.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn describe(control: &OwnedFd, name: &CStr, flags: libc::c_uint) -> Interface {
    let has = |bit: libc::c_int| flags & bit as libc::c_uint != 0;
    Interface {
        name: name.to_string_lossy().into_owned(),
        // SAFETY: the name is NUL-terminated.
        index: unsafe { libc::if_nametoindex(name.as_ptr()) },
        up: has(libc::IFF_UP),
        running: has(libc::IFF_RUNNING),
        loopback: has(libc::IFF_LOOPBACK),
        mtu: mtu(control, name).unwrap_or(0),
        addrs: Vec::new(),
    }
}

/// An empty ioctl request for the interface `name`.
fn request(name: &CStr) -> libc::ifreq {
    // SAFETY: ifreq is plain data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.to_bytes()) {
        *to = *from as libc::c_char;
    }
    request
}

fn mtu(control: &OwnedFd, name: &CStr) -> Result<usize, Errno> {
    let mut request = request(name);
    // SAFETY: SIOCGIFMTU reads the name and writes the mtu of the ifreq it is given.
    check(unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCGIFMTU as _, &mut request) })?;
    // SAFETY: the call succeeded, so the mtu is the union's live field.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.max(0) as usize)
}

/// # Safety
/// `item`'s address pointers must be null or valid for the family they state.
unsafe fn read_addr(item: &libc::ifaddrs) -> Option<InterfaceAddr> {
    if item.ifa_addr.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees the pointer; every sockaddr begins with its family.
    match unsafe { (*item.ifa_addr).sa_family } as libc::c_int {
        libc::AF_INET => {
            // SAFETY: family AF_INET means sockaddr_in.
            let addr = unsafe { *item.ifa_addr.cast::<libc::sockaddr_in>() };
            let mask = if item.ifa_netmask.is_null() {
                u32::MAX
            } else {
                // SAFETY: the mask has the address's family.
                unsafe { *item.ifa_netmask.cast::<libc::sockaddr_in>() }
                    .sin_addr
                    .s_addr
            };
            let ip = IpAddr::V4(Ipv4Addr::from(addr.sin_addr.s_addr.to_ne_bytes()));
            Some(InterfaceAddr {
                ip,
                prefix_len: mask.count_ones() as u8,
                scope_id: 0,
            })
        }
        libc::AF_INET6 => {
            // SAFETY: family AF_INET6 means sockaddr_in6.
            let addr = unsafe { *item.ifa_addr.cast::<libc::sockaddr_in6>() };
            let mask = if item.ifa_netmask.is_null() {
                [u8::MAX; 16]
            } else {
                // SAFETY: the mask has the address's family.
                unsafe { *item.ifa_netmask.cast::<libc::sockaddr_in6>() }
                    .sin6_addr
                    .s6_addr
            };
            let ip = IpAddr::V6(Ipv6Addr::from(addr.sin6_addr.s6_addr));
            let prefix_len = mask.iter().map(|b| b.count_ones()).sum::<u32>() as u8;
            Some(InterfaceAddr {
                ip,
                prefix_len,
                scope_id: addr.sin6_scope_id,
            })
        }
        _ => None,
    }
}

/// `struct ethtool_cmd`, whose speed is split into two halves.
#[repr(C)]
struct EthtoolCmd {
    cmd: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    rest: [u8; 14],
    speed_hi: u16,
    tail: [u8; 14],
}

/// `ETHTOOL_GSET`: works on every kernel, even with drivers that only implement its successor.
const ETHTOOL_GSET: u32 = 1;
/// `SIOCETHTOOL`.
const SIOCETHTOOL: u32 = 0x8946;

/// Nominal rate of a link in bytes/s; 0 if the driver does not know it. Queried by ioctl because
/// `/sys` may belong to another network namespace.
pub fn link_bytes_per_s(name: &str) -> u64 {
    let Ok(name) = std::ffi::CString::new(name) else {
        return 0;
    };
    let Ok(control) = control_socket() else {
        return 0;
    };
    let mut command = EthtoolCmd {
        cmd: ETHTOOL_GSET,
        supported: 0,
        advertising: 0,
        speed: 0,
        rest: [0; 14],
        speed_hi: 0,
        tail: [0; 14],
    };
    let mut request = request(&name);
    request.ifr_ifru.ifru_data = (&raw mut command).cast();
    // SAFETY: SIOCETHTOOL reads the name and works on the 44-byte command at `ifru_data`, which
    // lives until after the call.
    let rc = unsafe { libc::ioctl(control.as_raw_fd(), SIOCETHTOOL as _, &mut request) };
    if rc < 0 {
        return 0;
    }
    match (command.speed_hi as u32) << 16 | command.speed as u32 {
        u32::MAX | 0xffff => 0, // SPEED_UNKNOWN, in both widths
        mbit_per_s => mbit_per_s as u64 * 125_000,
    }
}

/// The index of the interface that has the name `name` at present.
pub fn interface_index(name: &str) -> Result<u32, Errno> {
    let name = std::ffi::CString::new(name).map_err(|_| libc::EINVAL)?;
    // SAFETY: the name is NUL-terminated.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(errno()),
        index => Ok(index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ethtool_command_has_the_kernels_layout() {
        assert_eq!(size_of::<EthtoolCmd>(), 44);
        assert_eq!(std::mem::offset_of!(EthtoolCmd, speed_hi), 28);
    }
}
