//! The NIC behind an interface, as described by sysfs.

use std::fs;
use std::path::{Path, PathBuf};

/// A NIC, as sysfs describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicInfo {
    /// The device's driver.
    pub driver: Option<String>,
    /// Device and vendor ids, such as `0x1017` and `0x15b3`.
    pub model: Option<String>,
    /// See `model`.
    pub maker: Option<String>,
    /// PCI address: domain, bus, device, function.
    pub pci: Option<(u16, u8, u8, u8)>,
    /// Link layer of the device's network.
    pub network: Option<&'static str>,
    /// State of its link; `None` if unknown.
    pub up: Option<bool>,
}

/// The NIC of an interface or verbs device. Empty if `/sys` is missing or belongs to another
/// network namespace.
pub fn nic_of(name: &str) -> NicInfo {
    let net = Path::new("/sys/class/net").join(name);
    let verbs = Path::new("/sys/class/infiniband").join(name);
    match (is_ours(&net, name), name.contains('/')) {
        (true, false) => read(&net),
        (false, false) if verbs.exists() => read(&verbs),
        _ => NicInfo::default(),
    }
}

/// Returns whether a sysfs entry belongs to this network namespace: sysfs shows the namespace in
/// which it was mounted, whose interfaces may have the same names.
fn is_ours(path: &Path, name: &str) -> bool {
    let index = text(path.join("ifindex")).and_then(|index| index.parse().ok());
    index.is_some_and(|index| crate::sys::interface_index(name) == Ok(index))
}

fn read(path: &Path) -> NicInfo {
    let device = path.join("device");
    let last = |link: PathBuf| {
        let target = fs::canonicalize(link).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    };
    NicInfo {
        driver: last(device.join("driver")),
        model: text(device.join("device")),
        maker: text(device.join("vendor")),
        pci: last(device).and_then(|address| pci(&address)),
        // ARPHRD numbers.
        network: text(path.join("type")).and_then(|kind| match &*kind {
            "1" => Some("Ethernet"),
            "32" => Some("InfiniBand"),
            _ => None,
        }),
        up: text(path.join("operstate")).and_then(|state| match &*state {
            "up" => Some(true),
            "down" | "lowerlayerdown" | "notpresent" => Some(false),
            _ => None,
        }),
    }
}

fn text(path: PathBuf) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// Parses an address such as `0000:3b:00.1`.
fn pci(address: &str) -> Option<(u16, u8, u8, u8)> {
    let (rest, function) = address.rsplit_once('.')?;
    let mut parts = rest.splitn(3, ':');
    let domain = u16::from_str_radix(parts.next()?, 16).ok()?;
    let bus = u8::from_str_radix(parts.next()?, 16).ok()?;
    let device = u8::from_str_radix(parts.next()?, 16).ok()?;
    Some((domain, bus, device, u8::from_str_radix(function, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_parsed() {
        assert_eq!(pci("0000:3b:00.1"), Some((0, 0x3b, 0, 1)));
        assert_eq!(pci("10a3:ff:1f.7"), Some((0x10a3, 255, 31, 7)));
        for other in [
            "",
            "virtio0",
            "0000:3b:00",
            "0000:3b.1",
            "x:y:z.0",
            "0000:3b:00.",
        ] {
            assert_eq!(pci(other), None, "{other}");
        }
    }

    #[test]
    fn an_interface_without_a_nic_has_none() {
        assert_eq!(nic_of("lo").pci, None);
        assert_eq!(nic_of("no-such-interface"), NicInfo::default());
        assert_eq!(nic_of("../../class/net/lo"), NicInfo::default());
    }
}
