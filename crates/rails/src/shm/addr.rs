//! Addresses of shm rails, little endian: `host [u8; 16], name u64`. `host` identifies the rails
//! that can reach each other: the running kernel, the network namespace (in which abstract socket
//! names are unique) and the user. `name` is the rail's listening socket.

use crate::sys;
use marline_wire::{RailAddr, RailKind};

/// Bytes of the host's identity.
const HOST_LEN: usize = 16;

/// The address of a shm rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ShmAddr {
    pub(crate) host: [u8; HOST_LEN],
    pub(crate) name: u64,
}

impl ShmAddr {
    /// Makes a new address on this host; the error says what to do.
    pub(crate) fn new() -> Result<ShmAddr, String> {
        let (boot, device, inode) = sys::host()
            .map_err(|e| format!("rail shm: /proc does not tell the host's identity: {e}"))?;
        let uid = sys::own_uid();
        let text = format!("{} {device} {inode} {uid}", boot.trim());
        let name = sys::random().map_err(|e| format!("rail shm: {}", sys::errno_text(e)))?;
        Ok(ShmAddr {
            host: fnv(text.as_bytes()).to_le_bytes(),
            name,
        })
    }

    /// Converts to a rail's address; index, writes and largest packet are left to its owner.
    pub(crate) fn rail(&self) -> RailAddr {
        let mut bytes = [0; HOST_LEN + 8];
        bytes[..HOST_LEN].copy_from_slice(&self.host);
        bytes[HOST_LEN..].copy_from_slice(&self.name.to_le_bytes());
        RailAddr::new(RailKind::Shm, &bytes)
    }

    /// Reads a rail's address; `None` for another kind.
    pub(crate) fn of(addr: &RailAddr) -> Option<ShmAddr> {
        let (host, name) = addr.bytes().split_first_chunk::<HOST_LEN>()?;
        let name = u64::from_le_bytes(name.try_into().ok()?);
        let host = *host;
        (addr.kind == RailKind::Shm).then_some(ShmAddr { host, name })
    }
}

/// Formats an address for people; `None` for another kind. The first digits of the name distinguish
/// the processes of a host.
pub(crate) fn show(addr: &RailAddr) -> Option<String> {
    let ShmAddr { name, .. } = ShmAddr::of(addr)?;
    Some(format!("shm {:08x}", name >> 32))
}

/// 128-bit FNV-1a: identical in every build. A forged collision would gain nothing, since hosts do
/// not choose their identities.
fn fnv(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let step = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
    bytes.iter().fold(OFFSET, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        let addr = ShmAddr::new().unwrap();
        assert_eq!(ShmAddr::of(&addr.rail()), Some(addr));
        let other = ShmAddr::new().unwrap();
        assert_eq!(addr.host, other.host);
        assert_ne!(addr.name, other.name);
        let mut udp = addr.rail();
        udp.kind = RailKind::Udp4;
        assert_eq!(ShmAddr::of(&udp), None);
        assert_eq!(ShmAddr::of(&RailAddr::new(RailKind::Shm, &[1; 23])), None);
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
