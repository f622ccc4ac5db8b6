//! Driver and queues of an interface, from sysfs.

use std::path::Path;

/// Where the kernel lists interfaces.
const CLASS: &str = "/sys/class/net";

/// The interface's driver; "unknown" for a virtual interface, which names none.
pub(super) fn driver(interface: &str) -> String {
    let link = Path::new(CLASS).join(interface).join("device/driver");
    let target = std::fs::read_link(link).ok();
    let name = target.as_deref().and_then(Path::file_name);
    name.map_or("unknown".into(), |name| name.to_string_lossy().into_owned())
}

/// Number of queues on which an interface receives.
pub(super) fn queues(interface: &str) -> usize {
    let entries = std::fs::read_dir(Path::new(CLASS).join(interface).join("queues"));
    let is_rx = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        name.as_encoded_bytes().starts_with(b"rx-")
    };
    let count = entries.map_or(1, |all| all.flatten().filter(is_rx).count());
    count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_a_queue_and_no_driver() {
        assert_eq!((driver("lo").as_str(), queues("lo")), ("unknown", 1));
        assert_eq!(queues("no-such-interface"), 1);
    }
}
