//! The ports of verbs devices, and the identity (GID or LID) by which a rail uses a port.

use super::addr::Node;
use super::marks::Marks;
use crate::sys::verbs::{device_names, Path, PortAttr, VerbsDevice};
use crate::sys::{interfaces, InterfaceAddr};
use crate::InterfaceChoice;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::Arc;

/// A port that a rail may use.
pub(super) struct Port {
    pub(super) device: Arc<VerbsDevice>,
    /// The device's name.
    name: String,
    pub(super) number: u8,
    pub(super) attr: PortAttr,
    /// The GID's index in the port's table; changes if the GID disappeared and returned.
    gid_index: AtomicU8,
    pub(super) gid: [u8; 16],
    pub(super) node: Node,
    /// The GID is of RoCE version 2.
    version_2: bool,
    /// The network interface on which IP multicast groups are joined; `None` on InfiniBand and RoCE
    /// version 1.
    pub(super) groups_on: Option<String>,
    /// The place of the rail's P_Key in the port's table.
    pub(super) pkey_index: u16,
    marks: Marks,
}

/// Hop limit of packets to a peer.
const HOPS: u8 = 64;

/// A port that exists, with its unambiguous name.
struct Found {
    name: String,
    device_name: String,
    device: Arc<VerbsDevice>,
    number: u8,
    attr: PortAttr,
}

impl Found {
    /// The ports of a device.
    fn of(device_name: &str, device: &Arc<VerbsDevice>) -> Vec<Found> {
        let several = device.ports > 1;
        let ports = (1..=device.ports).filter_map(|port| Some((port, device.port(port).ok()?)));
        let found = ports.map(|(number, attr)| Found {
            name: match several {
                true => format!("{device_name}:{number}"),
                false => device_name.to_owned(),
            },
            device_name: device_name.to_owned(),
            device: device.clone(),
            number,
            attr,
        });
        found.collect()
    }

    fn identity(&self) -> Result<Identity, String> {
        let any = Marks::default();
        identity(
            &self.device,
            &self.device_name,
            self.number,
            &self.attr,
            any,
        )
    }

    /// Returns whether the port is active and has an address.
    fn is_usable(&self) -> bool {
        self.attr.active() && self.identity().is_ok()
    }

    /// Returns whether a name in settings denotes exactly this port.
    fn is(&self, name: &str) -> bool {
        let port = |port: &str| port.parse() == Ok(self.number);
        let with_port = name.split_once(':');
        let numbered = with_port.is_some_and(|(device, n)| device == self.device_name && port(n));
        self.name == name || numbered
    }

    fn choice(&self) -> InterfaceChoice {
        InterfaceChoice {
            bytes_per_s: self.attr.bytes_per_s(),
            ..InterfaceChoice::none(&self.name)
        }
    }

    /// A short state for people.
    fn state(&self) -> String {
        match (self.attr.active(), self.identity()) {
            (true, Err(why)) => format!("{} up, but {why}", self.name),
            _ => format!("{} {}", self.name, state(&self.attr)),
        }
    }

    /// A full description for people.
    fn describe(&self) -> String {
        let (name, device, attr) = (&self.name, &self.device, &self.attr);
        let (mtu, mbit) = (attr.mtu(), attr.bytes_per_s() / 125_000);
        let identity = match self.identity() {
            Ok((gid_index, _, node)) => format!("{node}, GID {gid_index}"),
            Err(why) => why,
        };
        let layer = match attr.ethernet() {
            true => "RoCE",
            false => "InfiniBand",
        };
        let state = state(attr);
        let firmware = match device.firmware.as_str() {
            "" => "unknown",
            known => known,
        };
        let (answered, made) = device.reads;
        format!(
            "{name}: {layer}, {state}, {identity}, MTU {mtu}, {mbit} Mbit/s, messages up to {} \
             bytes, {} requests, {} completions a queue, {} receives a shared queue, {made} reads \
             made and {answered} answered at once, firmware {firmware}",
            attr.max_msg_sz, device.queue_max, device.completions_max, device.receives_max
        )
    }
}

/// The state of a port in a word or two.
fn state(attr: &PortAttr) -> &'static str {
    match (attr.active(), attr.waits()) {
        (true, _) => "up",
        (false, true) => "not up yet",
        (false, false) => "down",
    }
}

fn listed(ports: &[Found]) -> String {
    match ports.is_empty() {
        true => "there are none".to_owned(),
        false => ports
            .iter()
            .map(Found::state)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// The ports that the names denote: `DEVICE:PORT`, or `DEVICE` for its usable ports; without names,
/// all usable ports. A port that is named alone need not be usable yet. Errors are texts for
/// people.
pub(crate) fn choose(names: &[String]) -> Result<Vec<InterfaceChoice>, String> {
    let devices = device_names().map_err(|why| format!("verbs cannot be used: {why}"))?;
    let (mut ports, mut shut) = (Vec::new(), Vec::new());
    for device in devices {
        match VerbsDevice::open(&device) {
            Ok(open) => ports.extend(Found::of(&device, &open)),
            Err(why) => shut.push((device, why)),
        }
    }
    if names.is_empty() {
        let usable: Vec<_> = ports.iter().filter(|port| port.is_usable()).collect();
        return match (usable.is_empty(), shut.first()) {
            (false, _) => Ok(usable.into_iter().map(Found::choice).collect()),
            (true, Some((_, why))) if ports.is_empty() => Err(why.clone()),
            (true, _) => Err(no_usable("a verbs device", &ports)),
        };
    }
    let mut chosen = Vec::new();
    for name in names {
        let one = ports.iter().find(|port| port.is(name));
        let of_device = || ports.iter().filter(|port| port.device_name == *name);
        let unopened = shut.iter().find(|(device, _)| device_of(name) == device);
        match (one, unopened) {
            (Some(port), _) => chosen.push(port.choice()),
            (None, Some((_, why))) => return Err(why.clone()),
            (None, None) if of_device().next().is_some() => {
                let before = chosen.len();
                chosen.extend(
                    of_device()
                        .filter(|port| port.is_usable())
                        .map(Found::choice),
                );
                if chosen.len() == before {
                    return Err(no_usable(name, &ports));
                }
            }
            (None, None) => {
                let all = listed(&ports);
                return Err(format!(
                    "{name}: there is no such port of a verbs device ({all})"
                ));
            }
        }
    }
    Ok(chosen)
}

fn no_usable(of: &str, ports: &[Found]) -> String {
    format!("no port of {of} carries packets ({})", listed(ports))
}

/// The device in a port's name.
fn device_of(name: &str) -> &str {
    name.split_once(':').map_or(name, |(device, _)| device)
}

/// Describes all ports of verbs devices for people; the error says why there are none.
pub fn verbs_ports() -> Result<Vec<String>, String> {
    let mut ports = Vec::new();
    for name in device_names()? {
        match VerbsDevice::open(&name) {
            Ok(device) => ports.extend(Found::of(&name, &device).iter().map(Found::describe)),
            Err(why) => ports.push(why),
        }
    }
    match ports.is_empty() {
        true => Err("there is no verbs device (for soft-RoCE: rdma link add)".to_owned()),
        false => Ok(ports),
    }
}

/// The reason, for people, why a port that [`choose`] returned cannot carry packets at present.
pub(crate) fn complaint(name: &str, marks: Marks) -> Option<String> {
    match Port::open(name, marks) {
        Ok(port) if port.attr.active() => None,
        Ok(_) => Some("its port is down".to_owned()),
        Err(why) => Some(why),
    }
}

/// The identity of a port compared with its identity at opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Itself {
    /// Unchanged.
    AsBefore,
    /// The GID has another index in the port's table.
    Moved,
    /// The identity changed or disappeared.
    Gone,
}

impl Port {
    /// Opens a port by a name that [`choose`] returned; the error says what to do.
    pub(super) fn open(name: &str, marks: Marks) -> Result<Port, String> {
        let (name, number) = match name.split_once(':') {
            Some((device, port)) => (device.to_owned(), port.parse().unwrap_or(0)),
            None => (name.to_owned(), 1),
        };
        let device = VerbsDevice::open(&name)?;
        let attr = device
            .port(number)
            .map_err(|e| format!("port {number}: {}", crate::sys::errno_text(e)))?;
        let (gid_index, gid, node) = identity(&device, &name, number, &attr, marks)?;
        let (pkey_index, _) = marks.partition.find(&pkeys(&device, number, &attr))?;
        let version_2 = attr.ethernet() && is_version_2(&name, number, gid_index);
        let groups_on = version_2
            .then(|| interface_of(&name, number, gid_index))
            .flatten();
        Ok(Port {
            device,
            name,
            number,
            attr,
            gid_index: AtomicU8::new(gid_index),
            gid,
            node,
            version_2,
            groups_on,
            pkey_index,
            marks,
        })
    }

    /// The GID's index in the port's table.
    pub(super) fn gid_index(&self) -> u8 {
        self.gid_index.load(Relaxed)
    }

    /// The path to a port with this GID or LID.
    pub(super) fn path(&self, gid: Option<[u8; 16]>, lid: u16) -> Path {
        Path {
            port: self.number,
            gid_index: self.gid_index(),
            gid,
            lid,
            hops: HOPS,
            flow: 0,
            traffic_class: self.marks.traffic_class,
            service_level: self.marks.service_level,
        }
    }

    /// Compares the port's identity with the one in its address.
    pub(super) fn look(&self) -> Itself {
        let (device, number) = (&self.device, self.number);
        if let Node::Lid { prefix, lid, pkey } = self.node {
            let same = device.port(number).is_ok_and(|now| now.lid == lid)
                && device.pkey(number, self.pkey_index) == Some(pkey)
                && device
                    .gid(number, 0)
                    .is_some_and(|gid| gid.starts_with(&prefix));
            return match same {
                true => Itself::AsBefore,
                false => Itself::Gone,
            };
        }
        // While a handle or queue pair uses the table entry of a removed GID, the kernel keeps the
        // entry. A GID that returns therefore gets another index.
        let is_it = |index: &u8| {
            device.gid(number, *index) == Some(self.gid)
                && is_version_2(&self.name, number, *index) == self.version_2
        };
        if is_it(&self.gid_index()) {
            return Itself::AsBefore;
        }
        match (0..table_len(&self.attr)).find(is_it) {
            Some(index) => {
                self.gid_index.store(index, Relaxed);
                Itself::Moved
            }
            None => Itself::Gone,
        }
    }
}

type Identity = (u8, [u8; 16], Node);

/// The identity of a port; the error says what is missing.
fn identity(
    device: &VerbsDevice,
    name: &str,
    port: u8,
    attr: &PortAttr,
    marks: Marks,
) -> Result<Identity, String> {
    match attr.ethernet() {
        true => roce(device, name, port, attr, marks.gid_index),
        false => infiniband(device, port, attr, marks),
    }
}

/// The identity of an InfiniBand port: its LID.
fn infiniband(
    device: &VerbsDevice,
    port: u8,
    attr: &PortAttr,
    marks: Marks,
) -> Result<Identity, String> {
    let gid = device.gid(port, 0).ok_or("the port has no GID")?;
    let (_, pkey) = marks.partition.find(&pkeys(device, port, attr))?;
    if attr.lid == 0 {
        return Err(match attr.waits() || attr.active() {
            true => "the port has no LID yet: does a subnet manager run?".to_owned(),
            false => "the port is down, and has no LID yet".to_owned(),
        });
    }
    let prefix = std::array::from_fn(|at| gid[at]);
    let node = Node::Lid {
        prefix,
        lid: attr.lid,
        pkey,
    };
    Ok((0, gid, node))
}

/// The GID of a RoCE port: that at the wanted place, or else the best: version 2 before version 1,
/// because routers and ECMP handle it, and IPv4 first, because its subnet is known.
fn roce(
    device: &VerbsDevice,
    name: &str,
    port: u8,
    attr: &PortAttr,
    wanted: Option<u8>,
) -> Result<Identity, String> {
    let gids: Vec<(u8, [u8; 16])> = (0..table_len(attr))
        .filter_map(|index| Some((index, device.gid(port, index)?)))
        .filter(|(_, gid)| *gid != [0; 16])
        .collect();
    let rank = |(index, gid): &&(u8, [u8; 16])| rank(gid, is_version_2(name, port, *index));
    let found = match wanted {
        Some(wanted) => gids.iter().find(|(index, _)| *index == wanted),
        None => gids.iter().min_by_key(rank),
    };
    let &(index, gid) = found.ok_or_else(|| no_gid(wanted, &gids))?;
    let node = match Node::of_gid(gid, 0) {
        Node::V4 { ip, .. } => Node::V4 {
            ip,
            prefix_len: prefix_len(ip),
        },
        node => node,
    };
    Ok((index, gid, node))
}

/// The error for a port without a GID, or without one at the wanted place.
fn no_gid(wanted: Option<u8>, gids: &[(u8, [u8; 16])]) -> String {
    match wanted.filter(|_| !gids.is_empty()) {
        Some(wanted) => {
            let shown = gids.iter();
            let shown = shown.map(|(at, gid)| format!("{at}: {}", Node::of_gid(*gid, 0)));
            let shown = shown.collect::<Vec<_>>().join(", ");
            format!("the port has no GID {wanted} (FI_MARLINE_VERBS_GID_INDEX; it has {shown})")
        }
        None => "the port has no GID: give its interface an address".to_owned(),
    }
}

/// The P_Keys of a port, by their place in its table.
fn pkeys(device: &VerbsDevice, port: u8, attr: &PortAttr) -> Vec<(u16, u16)> {
    let places = 0..attr.pkey_tbl_len.max(1);
    places
        .filter_map(|index| Some((index, device.pkey(port, index)?)))
        .collect()
}

/// The number of GID table entries that are examined.
fn table_len(attr: &PortAttr) -> u8 {
    u8::try_from(attr.gid_tbl_len).unwrap_or(u8::MAX)
}

fn rank(gid: &[u8; 16], version_2: bool) -> u8 {
    let address = match Node::of_gid(*gid, 0) {
        Node::V4 { .. } => 0,
        _ if gid[0] == 0xfe && gid[1] & 0xc0 == 0x80 => 2,
        _ => 1,
    };
    address + if version_2 { 0 } else { 4 }
}

/// Returns whether the kernel reports the entry as RoCE version 2.
fn is_version_2(device: &str, port: u8, index: u8) -> bool {
    let path = format!("/sys/class/infiniband/{device}/ports/{port}/gid_attrs/types/{index}");
    std::fs::read_to_string(path).is_ok_and(|kind| kind.trim() == "RoCE v2")
}

/// The network interface of an entry.
fn interface_of(device: &str, port: u8, index: u8) -> Option<String> {
    let path = format!("/sys/class/infiniband/{device}/ports/{port}/gid_attrs/ndevs/{index}");
    let name = std::fs::read_to_string(path).ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Prefix length of a local address; 32 if no interface has the address.
fn prefix_len(ip: Ipv4Addr) -> u8 {
    let all = interfaces().unwrap_or_default();
    let mut addresses = all.iter().flat_map(|interface| &interface.addrs);
    let own = addresses.find(|addr: &&InterfaceAddr| addr.ip == IpAddr::V4(ip));
    own.map_or(32, |addr| addr.prefix_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_identity_is_chosen() {
        let v4 = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets();
        let global: [u8; 16] = std::array::from_fn(|at| if at == 0 { 0xfd } else { 1 });
        let local: [u8; 16] = std::array::from_fn(|at| [0xfe, 0x80, 1][at.min(2)]);
        let order = [
            (v4, true),
            (global, true),
            (local, true),
            (v4, false),
            (local, false),
        ];
        let ranks: Vec<_> = order.iter().map(|(gid, v2)| rank(gid, *v2)).collect();
        assert!(ranks.is_sorted() && ranks[0] < ranks[1], "{ranks:?}");
    }
}
