//! Settings of a port's packets: traffic class, service level, GID and partition.

/// The part of a port that rails use, and the class of their packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Traffic class of all packets: the TOS of RoCE version 2.
    pub traffic_class: u8,
    /// Service level, 0 to 15.
    pub service_level: u8,
    /// RoCE: the GID's place in each port's table; `None`: the best one.
    pub gid_index: Option<u8>,
    /// The partition.
    pub partition: Partition,
}

/// A partition of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// The place of its P_Key in each port's table.
    At(u16),
    /// Its P_Key, of which the highest bit (full membership) may differ.
    Key(u16),
}

impl Default for Partition {
    fn default() -> Partition {
        Partition::At(0)
    }
}

/// The highest bit of a P_Key: full members of a partition reach all others.
const FULL_MEMBER: u16 = 0x8000;

impl Partition {
    /// The partition's place and P_Key among those of a port; full membership before limited. An
    /// empty entry of the table is 0.
    pub(super) fn find(self, pkeys: &[(u16, u16)]) -> Result<(u16, u16), String> {
        let is_it = |(at, key): &&(u16, u16)| match self {
            Partition::At(wanted) => *at == wanted,
            Partition::Key(wanted) => (key ^ wanted) & !FULL_MEMBER == 0,
        };
        let used = || pkeys.iter().filter(|(_, key)| key & !FULL_MEMBER != 0);
        let found = used()
            .filter(is_it)
            .max_by_key(|(_, key)| key & FULL_MEMBER);
        found.copied().ok_or_else(|| {
            let wanted = match self {
                Partition::At(place) => format!("P_Key at place {place}"),
                Partition::Key(key) => format!("P_Key {key:#06x}"),
            };
            let shown = used().map(|(at, key)| format!("{at}: {key:#06x}"));
            let shown = shown.collect::<Vec<_>>().join(", ");
            format!("the port has no {wanted} (FI_MARLINE_VERBS_PKEY; it has {shown})")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_found_by_place_and_by_key() {
        let pkeys = [(0, 0xffff), (1, 0x0005), (2, 0), (3, 0x8005)];
        for (wanted, found) in [
            (Partition::default(), (0, 0xffff)),
            (Partition::At(1), (1, 0x0005)),
            (Partition::Key(0x7fff), (0, 0xffff)),
            (Partition::Key(5), (3, 0x8005)),
        ] {
            assert_eq!(wanted.find(&pkeys), Ok(found), "{wanted:?}");
        }
        for (wanted, said) in [
            (Partition::At(2), "no P_Key at place 2 ("),
            (Partition::Key(0x8006), "no P_Key 0x8006 ("),
        ] {
            let error = wanted.find(&pkeys).unwrap_err();
            assert!(error.contains(said), "{error}");
            assert!(
                error.ends_with("0: 0xffff, 1: 0x0005, 3: 0x8005)"),
                "{error}"
            );
        }
    }
}
