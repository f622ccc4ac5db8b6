//! Which ports there are, and by which of its identities a port is used.

use super::addr::Node;
use crate::sys::verbs::{device_names, PortAttr, VerbsDevice};
use crate::sys::{interfaces, InterfaceAddr};
use crate::InterfaceChoice;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// A port that a rail may use.
pub(super) struct Port {
    pub(super) device: Arc<VerbsDevice>,
    pub(super) number: u8,
    pub(super) attr: PortAttr,
    /// Its GID's place in the port's table.
    pub(super) gid_index: u8,
    pub(super) gid: [u8; 16],
    pub(super) node: Node,
    /// The network interface that its groups are joined on, by IP; `None`: it has none, as on
    /// InfiniBand and RoCE version 1.
    pub(super) groups_on: Option<String>,
}

/// The ports that some names mean, `DEVICE` or `DEVICE:PORT`; without names all that carry packets.
/// The errors are texts for people.
pub(crate) fn choose(names: &[String]) -> Result<Vec<InterfaceChoice>, String> {
    let devices = device_names().map_err(|why| format!("verbs cannot be used: {why}"))?;
    let mut ports = Vec::new();
    for device in &devices {
        match VerbsDevice::open(device) {
            Ok(open) => ports.extend(ports_of(device, &open)),
            // Of several, those that work.
            Err(_) if names.is_empty() && devices.len() > 1 => {}
            Err(why) => return Err(why),
        }
    }
    if names.is_empty() {
        let up = |(_, attr): &(String, PortAttr)| attr.active();
        let usable: Vec<_> = ports.iter().filter(|port| up(port)).map(choice).collect();
        return match usable.is_empty() {
            true => Err(format!(
                "no port of a verbs device carries packets ({})",
                listed(&ports)
            )),
            false => Ok(usable),
        };
    }
    let mut chosen = Vec::new();
    for name in names {
        let device = |port: &str| port.split(':').next() == Some(name.as_str());
        let named = ports
            .iter()
            .filter(|(port, _)| port == name || device(port));
        let before = chosen.len();
        chosen.extend(named.map(choice));
        if chosen.len() == before {
            let all = listed(&ports);
            return Err(format!(
                "{name}: there is no such port of a verbs device ({all})"
            ));
        }
    }
    Ok(chosen)
}

/// The ports of verbs devices there are, described for people; the error says why there are none.
pub fn verbs_ports() -> Result<Vec<String>, String> {
    let mut ports = Vec::new();
    for name in device_names()? {
        match VerbsDevice::open(&name) {
            Ok(device) => {
                let named = ports_of(&name, &device).into_iter();
                ports.extend(named.map(|(port, attr)| describe(&port, &device, &attr)));
            }
            Err(why) => ports.push(why),
        }
    }
    match ports.is_empty() {
        true => Err("there is no verbs device (for soft-RoCE: rdma link add)".to_owned()),
        false => Ok(ports),
    }
}

fn describe(name: &str, device: &VerbsDevice, attr: &PortAttr) -> String {
    let (mtu, mbit) = (attr.mtu(), attr.bytes_per_s() / 125_000);
    let identity = match Port::open(name) {
        Ok(Port {
            node, gid_index, ..
        }) => format!("{node}, GID {gid_index}"),
        Err(why) => why,
    };
    let layer = if attr.ethernet() {
        "RoCE"
    } else {
        "InfiniBand"
    };
    let state = if attr.active() { "up" } else { "down" };
    let (firmware, queue) = (&device.firmware, device.queue_max);
    let firmware = if firmware.is_empty() {
        "unknown"
    } else {
        firmware
    };
    let (answered, made) = device.reads;
    format!(
        "{name}: {layer}, {state}, {identity}, MTU {mtu}, {mbit} Mbit/s, messages up to {} bytes, \
         {queue} requests, {} completions a queue, {} receives a shared queue, \
         {made} reads made and {answered} answered at once, firmware {firmware}",
        attr.max_msg_sz, device.completions_max, device.receives_max
    )
}

/// The ports of a device, by the names that mean them alone.
fn ports_of(name: &str, device: &VerbsDevice) -> Vec<(String, PortAttr)> {
    let several = device.ports > 1;
    let ports = (1..=device.ports).filter_map(|port| Some((port, device.port(port).ok()?)));
    let named = ports.map(|(port, attr)| match several {
        true => (format!("{name}:{port}"), attr),
        false => (name.to_owned(), attr),
    });
    named.collect()
}

fn choice((name, attr): &(String, PortAttr)) -> InterfaceChoice {
    InterfaceChoice {
        bytes_per_s: attr.bytes_per_s(),
        ..InterfaceChoice::none(name)
    }
}

fn listed(ports: &[(String, PortAttr)]) -> String {
    let state = |attr: &PortAttr| if attr.active() { "up" } else { "down" };
    let all: Vec<_> = ports
        .iter()
        .map(|(name, attr)| format!("{name} {}", state(attr)))
        .collect();
    match all.is_empty() {
        true => "there are none".to_owned(),
        false => all.join(", "),
    }
}

impl Port {
    /// Opens the port of a name that [`choose`] gave; the error says what to do.
    pub(super) fn open(name: &str) -> Result<Port, String> {
        let (device_name, number) = match name.split_once(':') {
            Some((device, port)) => (device, port.parse().unwrap_or(0)),
            None => (name, 1),
        };
        let device = VerbsDevice::open(device_name)?;
        let attr = device
            .port(number)
            .map_err(|e| format!("port {number}: {}", crate::sys::errno_text(e)))?;
        let (gid_index, gid, node) = match attr.ethernet() {
            true => roce(&device, device_name, number, &attr)?,
            false => infiniband(&device, number, &attr)?,
        };
        let version_2 = attr.ethernet() && is_version_2(device_name, number, gid_index);
        let groups_on = version_2
            .then(|| interface_of(device_name, number, gid_index))
            .flatten();
        Ok(Port {
            groups_on,
            device,
            number,
            attr,
            gid_index,
            gid,
            node,
        })
    }

    /// The port is still the one that its address names.
    pub(super) fn is_itself(&self) -> bool {
        match self.node {
            Node::Lid { lid, .. } => self
                .device
                .port(self.number)
                .is_ok_and(|now| now.lid == lid),
            Node::V4 { .. } | Node::Gid(_) => {
                self.device.gid(self.number, self.gid_index) == Some(self.gid)
            }
        }
    }
}

type Identity = (u8, [u8; 16], Node);

/// The identity of a port of InfiniBand: its LID.
fn infiniband(device: &VerbsDevice, port: u8, attr: &PortAttr) -> Result<Identity, String> {
    let gid = device.gid(port, 0).ok_or("the port has no GID")?;
    let pkey = device.pkey(port, 0).ok_or("the port has no P_Key")?;
    if attr.lid == 0 {
        return Err("the port has no LID yet: does a subnet manager run?".to_owned());
    }
    let prefix = std::array::from_fn(|at| gid[at]);
    let node = Node::Lid {
        prefix,
        lid: attr.lid,
        pkey,
    };
    Ok((0, gid, node))
}

/// The best GID of a port of RoCE: version 2 before 1, as routers and load balancing know it, and
/// IPv4 first, as its subnet is known.
fn roce(device: &VerbsDevice, name: &str, port: u8, attr: &PortAttr) -> Result<Identity, String> {
    let table = u8::try_from(attr.gid_tbl_len).unwrap_or(u8::MAX);
    let mut best: Option<(u8, u8, [u8; 16])> = None;
    for index in 0..table {
        let Some(gid) = device.gid(port, index).filter(|gid| *gid != [0; 16]) else {
            continue;
        };
        let rank = rank(&gid, is_version_2(name, port, index));
        if best.is_none_or(|(least, ..)| rank < least) {
            best = Some((rank, index, gid));
        }
    }
    let (_, index, gid) = best.ok_or("the port has no GID: give its interface an address")?;
    let node = match Node::of_gid(gid, 0) {
        Node::V4 { ip, .. } => Node::V4 {
            ip,
            prefix_len: prefix_len(ip),
        },
        node => node,
    };
    Ok((index, gid, node))
}

fn rank(gid: &[u8; 16], version_2: bool) -> u8 {
    let address = match Node::of_gid(*gid, 0) {
        Node::V4 { .. } => 0,
        _ if gid[0] == 0xfe && gid[1] & 0xc0 == 0x80 => 2,
        _ => 1,
    };
    address + if version_2 { 0 } else { 4 }
}

/// An entry is of RoCE version 2, as far as the kernel says so.
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

/// Bits of the subnet of a local address; 32 when no interface has it.
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
