//! Applies faults by `ip link`, by nft at the switch's ports, and by tc at both ends of a cable.
//!
//! Drops, blackholes and corruption happen at the switch's end of the cable, in the switches'
//! namespace: on ingress for packets from a host (`out`), on egress for packets to it (`in`). The
//! sender gets no error, as on a real link; nft at the sending host's output would make `sendmsg`
//! fail with EPERM. With segmentation offload, super-packets of up to 64 KB pass as one packet;
//! with offload off on the rail, each packet of the wire meets the fault separately.

use super::enter::{run_in, Place};
use super::fault::{Active, Dir, Effect, Ports};
use super::forget;
use super::names::{port_name, rail_address};
use super::state::{rail_name, Lab};
use crate::outcome::Failure;
use std::fmt::Write as _;

/// Changes the kernel's faults from `lab.faults` to `wanted`, and stores the latter.
pub fn change(lab: &mut Lab, wanted: Vec<Active>) -> Result<(), Failure> {
    let before = std::mem::replace(&mut lab.faults, wanted);
    apply_nft(lab, &before)?;
    for host in 0..lab.shape.hosts {
        for rail in 0..lab.shape.rails {
            apply_link(lab, &before, host, rail)?;
            for dir in [Dir::In, Dir::Out] {
                apply_tc(lab, &before, (host, rail, dir))?;
            }
        }
    }
    Ok(lab.save()?)
}

fn is_nft(fault: &Active) -> bool {
    fault.effect.by_packet()
}

fn apply_nft(lab: &Lab, before: &[Active]) -> Result<(), Failure> {
    let old: Vec<&Active> = before.iter().filter(|f| is_nft(f)).collect();
    let new: Vec<&Active> = lab.faults.iter().filter(|f| is_nft(f)).collect();
    if old == new {
        return Ok(());
    }
    let mut script = nft_script(&old, &new);
    for fault in new.iter().filter(|f| !old.contains(f)) {
        if let Effect::Forget(_) = fault.effect {
            forget::elements(lab, fault, &mut script)?;
        }
    }
    run_in(lab, Place::Switch, &["nft", "-f", "-"], &script).map(drop)
}

/// A single transaction: rules are replaced, counters of unchanged faults continue.
fn nft_script(old: &[&Active], new: &[&Active]) -> String {
    let mut s = String::from("add table netdev marline\nflush table netdev marline\n");
    for fault in old.iter().filter(|f| !new.iter().any(|n| n.id() == f.id())) {
        let id = fault.id();
        if let Effect::Corrupt(_) = fault.effect {
            let _ = writeln!(s, "delete chain netdev marline {id}");
        }
        if let Effect::Forget(_) = fault.effect {
            forget::delete_sets(&mut s, &id);
        }
        let _ = writeln!(s, "delete counter netdev marline {id}");
    }
    if new.iter().any(|f| matches!(f.effect, Effect::Corrupt(_))) {
        flip_chains(&mut s);
    }
    for fault in new {
        let _ = writeln!(s, "add counter netdev marline {}", fault.id());
        let chain = format!("{}_{}", port_name(fault.host, fault.rail), fault.dir.word());
        let hook = if fault.dir == Dir::Out {
            "ingress"
        } else {
            "egress"
        };
        let device = port_name(fault.host, fault.rail);
        let _ = writeln!(
            s,
            "add chain netdev marline {chain} \
             {{ type filter hook {hook} device {device} priority 0; }}"
        );
        fault_rules(&mut s, fault, &chain);
    }
    s
}

/// Matches `ppm` packets of a million. To match all packets, the rule has no match: nft accepts no
/// number equal to its modulus.
fn chance(ppm: u32) -> String {
    match ppm {
        1_000_000.. => String::new(),
        _ => format!("numgen random mod 1000000 < {ppm} "),
    }
}

/// The rules of one fault in its port's chain.
fn fault_rules(s: &mut String, fault: &Active, chain: &str) {
    let id = fault.id();
    let verdict = match fault.effect {
        Effect::Forget(_) => {
            forget::add_sets(s, &id);
            format!("counter name {id} drop")
        }
        Effect::Blackhole | Effect::Mtu(_) => format!("counter name {id} drop"),
        Effect::Drop(ppm) => {
            format!("{CARRIES_DATA} {}counter name {id} drop", chance(ppm))
        }
        Effect::Corrupt(ppm) => {
            let _ = writeln!(s, "add chain netdev marline {id}");
            corrupt_rules(s, &id);
            format!("{CARRIES_DATA} {}jump {id}", chance(ppm))
        }
        _ => return,
    };
    let time = fault.span.map_or(String::new(), |(from, until)| {
        format!("meta time >= {from} meta time < {until} ")
    });
    for what in kinds(fault.effect, &id) {
        for ports in port_matches(fault.ports) {
            let what = format!("{time}{what}{ports}{verdict}");
            let _ = writeln!(s, "add rule netdev marline {chain} {what}");
        }
    }
}

/// Matches the packets that a fault concerns: forgotten connections, or packets above an MTU by the
/// length in their IP header. (`meta length` includes the Ethernet header in one direction only;
/// IPv6's length field excludes its own header.)
fn kinds(effect: Effect, id: &str) -> Vec<String> {
    const IPV6_HEADER: u32 = 40;
    match effect {
        Effect::Mtu(bytes) => vec![
            format!("meta protocol ip ip length > {bytes} "),
            format!("meta protocol ip6 ip6 length > {} ", bytes - IPV6_HEADER),
        ],
        Effect::Forget(_) => forget::matches(id).to_vec(),
        _ => vec![String::new()],
    }
}

/// Random faults spare ARP and neighbour discovery: losing those stalls a flow for a second or
/// more, which says nothing about the transport under test.
const CARRIES_DATA: &str = "meta protocol { ip, ip6 } meta l4proto != ipv6-icmp";

/// Matches for a port range, mutually exclusive, so that each packet is judged once.
fn port_matches(ports: Ports) -> Vec<String> {
    match ports {
        None => vec![String::new()],
        Some((lo, hi)) => {
            let l4 = "meta l4proto { tcp, udp }";
            vec![
                format!("{l4} th dport {lo}-{hi} "),
                format!("{l4} th sport {lo}-{hi} th dport != {lo}-{hi} "),
            ]
        }
    }
}

/// Classes of packets, longest first: nft's match, and offsets in bytes from the start of the TCP
/// or UDP header that are certainly payload.
///
/// UDP has a length field. For TCP, `meta length` includes the Ethernet header (14 B) on the way
/// out of the switch but not on the way in, IPv6 headers are 20 B longer than IPv4's, and the TCP
/// header has up to 60 B: the bounds hold in the worst case.
const CLASSES: &[(&str, u32, &[u32])] = &[
    (
        UDP,
        1300,
        &[8, 24, 101, 203, 399, 555, 802, 1023, 1201, 1289],
    ),
    (UDP, 402, &[8, 19, 77, 130, 191, 260, 333, 401]),
    (UDP, 131, &[8, 11, 33, 66, 81, 99, 117, 130]),
    (UDP, 61, &[8, 11, 20, 29, 38, 47, 55, 60]),
    (UDP, 18, &[8, 9, 13, 17]),
    (UDP, 9, &[8]),
    (
        TCP,
        1400,
        &[64, 70, 101, 203, 399, 555, 802, 1023, 1201, 1289],
    ),
    (TCP, 500, &[64, 77, 130, 191, 222, 260, 333, 401]),
    (TCP, 200, &[64, 66, 81, 99, 117, 130]),
];
const UDP: &str = "udp length";
const TCP: &str = "meta l4proto tcp meta length";

fn corrupt_rules(s: &mut String, id: &str) {
    for (length, least, offsets) in CLASSES {
        let goto = |(i, offset): (usize, &u32)| format!("{i} : goto flip{offset}");
        let map: Vec<String> = offsets.iter().enumerate().map(goto).collect();
        let _ = writeln!(
            s,
            "add rule netdev marline {id} {length} >= {least} counter name {id} \
             numgen random mod {} vmap {{ {} }}",
            offsets.len(),
            map.join(", ")
        );
    }
}

/// A chain per byte offset. XOR with a constant always changes the byte. Checksums are not
/// adjusted. A veth never verifies the transport header's checksum, so this resembles an adapter
/// that corrupts data after its check.
fn flip_chains(s: &mut String) {
    let mut offsets: Vec<u32> = CLASSES.iter().flat_map(|c| c.2.iter().copied()).collect();
    offsets.sort_unstable();
    offsets.dedup();
    for offset in offsets {
        let bits = offset * 8;
        let _ = writeln!(
            s,
            "add chain netdev marline flip{offset}\n\
             add rule netdev marline flip{offset} @th,{bits},8 set @th,{bits},8 ^ 0x55"
        );
    }
}

fn has(faults: &[Active], host: usize, rail: usize, effect: Effect) -> bool {
    faults
        .iter()
        .any(|f| (f.host, f.rail, f.effect) == (host, rail, effect))
}

fn apply_link(lab: &Lab, before: &[Active], host: usize, rail: usize) -> Result<(), Failure> {
    let changed = |e| {
        let now = has(&lab.faults, host, rail, e);
        (now != has(before, host, rail, e)).then_some(if now { "down" } else { "up" })
    };
    if let Some(word) = changed(Effect::Down) {
        let port = port_name(host, rail);
        run_in(
            lab,
            Place::Switch,
            &["ip", "link", "set", "dev", &port, word],
            "",
        )?;
    }
    if let Some(word) = changed(Effect::IfDown) {
        let name = rail_name(rail);
        run_in(
            lab,
            Place::Host(host),
            &["ip", "link", "set", "dev", &name, word],
            "",
        )?;
        let address = rail_address(lab, host, rail);
        if word == "up" {
            // IPv6 may have lost the address while the link was down.
            let words = ["ip", "addr", "replace", &address, "dev", &name];
            run_in(lab, Place::Host(host), &words, "")?;
        }
    }
    Ok(())
}

/// Rate in bits per second and delay in microseconds at one end.
fn shaping(faults: &[Active], at: (usize, usize, Dir)) -> (Option<u64>, Option<u64>) {
    let (mut rate, mut delay) = (None, None);
    for fault in faults.iter().filter(|f| (f.host, f.rail, f.dir) == at) {
        match fault.effect {
            Effect::Rate(bps) => rate = Some(bps),
            Effect::Delay(us) => delay = Some(us),
            _ => {}
        }
    }
    (rate, delay)
}

/// The place and device at which a direction of a rail is shaped: sent packets at the host's end of
/// the cable, received packets at the switch's.
fn shaping_device(host: usize, rail: usize, dir: Dir) -> (Place, String) {
    match dir {
        Dir::Out => (Place::Host(host), rail_name(rail)),
        Dir::In => (Place::Switch, port_name(host, rail)),
    }
}

fn apply_tc(lab: &Lab, before: &[Active], at: (usize, usize, Dir)) -> Result<(), Failure> {
    let (was, now) = (shaping(before, at), shaping(&lab.faults, at));
    if was == now {
        return Ok(());
    }
    let (place, dev) = shaping_device(at.0, at.1, at.2);
    if was != (None, None) {
        // After a failed change there may be no qdisc; but a remaining qdisc would make the next
        // `add` fail.
        let _ = run_in(lab, place, &["tc", "qdisc", "del", "dev", &dev, "root"], "");
    }
    let mut parent = vec!["root"];
    if let Some(us) = now.1 {
        let delay = format!("{us}us");
        // Queue for a second of a gigabit link, as a long link has.
        let words = [
            "tc", "qdisc", "add", "dev", &dev, "root", "handle", "1:", "netem", "limit", "100000",
            "delay", &delay,
        ];
        run_in(lab, place, &words, "").map_err(explain_netem)?;
        parent = vec!["parent", "1:1"];
    }
    if let Some(bps) = now.0 {
        let rate = format!("{bps}bit");
        let mut words = vec!["tc", "qdisc", "add", "dev", &dev];
        words.extend(parent);
        words.extend([
            "handle", "2:", "tbf", "rate", &rate, "burst", "128k", "latency", "50ms",
        ]);
        run_in(lab, place, &words, "")?;
    }
    Ok(())
}

fn explain_netem(error: Failure) -> Failure {
    let says = |word| error.text().contains(word);
    if says("unknown") || says("not found") {
        return "this kernel has no netem, so it cannot delay packets (needs CONFIG_NET_SCH_NETEM: \
                modprobe sch_netem; Debian's own kernel has it)"
            .into();
    }
    error
}

/// Sets segmentation offload of one rail at both ends of every cable.
///
/// Off disables the devices' offload features, so that the kernel cuts super-packets before the
/// cable, as an adapter does before the wire. (Not by `gso_max_segs 1`, with which TCP itself sends
/// and paces single segments, thirty times slower.) Checksum offload stays on; without it,
/// receivers would notice a corrupted byte by the checksum.
pub fn set_offload(lab: &Lab, rail: usize, on: bool) -> Result<(), Failure> {
    let state = if on { "on" } else { "off" };
    for host in 0..lab.shape.hosts {
        for dir in [Dir::In, Dir::Out] {
            let (place, dev) = shaping_device(host, rail, dir);
            let mut words = vec!["ethtool", "-K", &dev];
            for feature in ["tso", "gso", "tx-udp-segmentation"] {
                words.extend([feature, state]);
            }
            run_in(lab, place, &words, "")?;
        }
    }
    Ok(())
}

/// The packets that each fault hit, one line each; `None` if the interface is down, since nothing
/// is counted then.
pub fn counters(lab: &Lab) -> Result<Vec<(String, Option<u64>)>, Failure> {
    let mut lines = Vec::new();
    let nft = match lab.faults.iter().any(is_nft) {
        true => run_in(lab, Place::Switch, &["nft", "list", "counters"], "")?,
        false => String::new(),
    };
    for fault in &lab.faults {
        let hits = match fault.effect {
            _ if is_nft(fault) => Some(nft_packets(&nft, &fault.id())),
            Effect::Rate(_) | Effect::Delay(_) => {
                let (place, dev) = shaping_device(fault.host, fault.rail, fault.dir);
                let words = ["tc", "-s", "qdisc", "show", "dev", &dev, "root"];
                Some(tc_packets(&run_in(lab, place, &words, "")?))
            }
            _ => None,
        };
        lines.push((fault.describe(), hits));
    }
    Ok(lines)
}

/// The packet count of a named counter in `nft list counters`.
fn nft_packets(listing: &str, id: &str) -> u64 {
    let head = format!("counter {id} {{");
    let after = listing.split_once(&head).map_or("", |(_, rest)| rest);
    number_after(after, "packets ")
}

/// The packets that passed a queueing discipline.
fn tc_packets(listing: &str) -> u64 {
    listing
        .split_once("bytes ")
        .map_or(0, |(_, rest)| number_after(rest, ""))
}

fn number_after(text: &str, key: &str) -> u64 {
    let rest = text.split_once(key).map_or("", |(_, rest)| rest);
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_the_tools_listings() {
        let nft =
            "table netdev marline {\n\tcounter h0_rail0_in_drop {\n\t\tpackets 17 bytes 9\n\t}\n\
                   \tcounter h0_rail0_in_drop_p1_2 {\n\t\tpackets 4 bytes 9\n\t}\n}\n";
        assert_eq!(nft_packets(nft, "h0_rail0_in_drop"), 17);
        assert_eq!(nft_packets(nft, "h0_rail0_in_drop_p1_2"), 4);
        assert_eq!(nft_packets(nft, "h9_rail0_in_drop"), 0);
        let tc = "qdisc tbf 2: root\n Sent 1242 bytes 23 pkt (dropped 0, overlimits 0)\n";
        assert_eq!(tc_packets(tc), 23);
        assert_eq!(tc_packets(""), 0);
    }

    #[test]
    fn every_packet_is_matched_without_a_number_that_nft_refuses() {
        assert_eq!(chance(1_000_000), "");
        assert_eq!(chance(999_999), "numgen random mod 1000000 < 999999 ");
    }

    #[test]
    fn corrupted_bytes_are_payload_in_every_class() {
        const ETHERNET: u32 = 14;
        const IPV6: u32 = 40;
        for (length, least, offsets) in CLASSES {
            let (header, outer) = if *length == TCP {
                (60, ETHERNET + IPV6)
            } else {
                (8, 0)
            };
            for offset in *offsets {
                assert!(*offset >= header, "{length} {offset} is in a header");
                assert!(*offset < least - outer, "{length} {offset} is past {least}");
            }
        }
    }
}
