//! Links: a rail's connections to single rails of its peers.
//!
//! [`Links::connect`] makes a link and names it by a number of the rail. All calls of `connect` for
//! one address share one link, which lives until each of its users has closed it. A link that is
//! down never carries packets again: its users close it and connect anew.

use marline_wire::RailAddr;
use std::collections::HashMap;
use std::hash::Hash;

/// Names a link of one rail. The number of a closed link may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId(pub u32);

impl LinkId {
    /// No link: packets sent on it are lost.
    pub const NONE: LinkId = LinkId(u32::MAX);
}

/// The answer to [`Links::connect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    /// The link.
    pub link: LinkId,
    /// The link carries packets already; if `false`, an event reports when it comes up or fails.
    pub up: bool,
}

/// Why a link is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// The peer's host reports that no process listens at the address (or a firewall that resets
    /// connections does so in its place): the process may be gone. Reported only of a link that was
    /// never up, and not if the peer itself rejects the connection.
    Refused,
    /// No answer arrived in time.
    Unanswered,
    /// The peer closed the link.
    Closed,
    /// The connection broke, with the errno.
    Broken(i32),
    /// The connection broke: the adapter completed a request with this status (`ibv_wc_status`).
    Completion(i32),
}

/// Making and ending links.
pub trait Links {
    /// Adds a user to the link to a peer's rail, and makes the link if there is none. If the rail
    /// knows that the address is unreachable, the link loses all packets. An incoming connection
    /// becomes the link of the address that its peer stated.
    fn connect(&mut self, to: &RailAddr) -> Connected;

    /// Reports that packets sent on the link arrive, according to acks on any path. A rail whose
    /// kernel resolves neighbour addresses (ARP, NDP) confirms the neighbour entry, so that the
    /// kernel need not probe over the same link.
    fn works(&mut self, link: LinkId);

    /// Reports that no packet sent on the link is acknowledged; called repeatedly while the silence
    /// lasts. A rail whose neighbours may be waiting for address resolution announces its own
    /// address to them.
    fn silent(&mut self, link: LinkId);

    /// Asks for another route through the network after a long silence, for example by a connection
    /// from another source port. (A connectionless rail is given another flow instead.) Returns
    /// whether the rail tries another route.
    fn reroute(&mut self, link: LinkId) -> bool;

    /// Removes a user; the last one ends the link. No later event names the link.
    fn close(&mut self, link: LinkId);
}

/// A rail's links by number and by address, with their counts of users. `K` is the part of an
/// address that distinguishes links, `T` the rail's state of a link.
#[derive(Debug)]
pub struct LinkTable<K, T> {
    rows: Vec<Option<Row<K, T>>>,
    free: Vec<u32>,
    by_key: HashMap<K, u32>,
}

#[derive(Debug)]
struct Row<K, T> {
    key: K,
    users: u32,
    link: T,
}

impl<K, T> Default for LinkTable<K, T> {
    fn default() -> LinkTable<K, T> {
        LinkTable {
            rows: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
        }
    }
}

impl<K: Copy + Eq + Hash, T> LinkTable<K, T> {
    /// Returns the link of a key and adds a user; `make` creates the link if there is none.
    pub fn connect(&mut self, key: K, make: impl FnOnce() -> T) -> LinkId {
        let link = self.find(&key).unwrap_or_else(|| self.add(key, make()));
        if let Some(row) = self.row(link) {
            row.users += 1;
        }
        link
    }

    /// Adds a link without users, which replaces any other link of this key.
    pub fn add(&mut self, key: K, link: T) -> LinkId {
        let row = Row {
            key,
            users: 0,
            link,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.rows[at as usize] = Some(row);
                at
            }
            None => {
                self.rows.push(Some(row));
                self.rows.len() as u32 - 1
            }
        };
        self.by_key.insert(key, at);
        LinkId(at)
    }

    /// Removes a user. The last removal deletes the link and returns its state.
    pub fn close(&mut self, link: LinkId) -> Option<T> {
        let row = self.row(link)?;
        row.users = row.users.saturating_sub(1);
        if row.users > 0 {
            return None;
        }
        self.retire(link);
        let row = self.rows[link.0 as usize].take()?;
        self.free.push(link.0);
        Some(row.link)
    }

    /// Detaches a link that is down from its key, so that the next `connect` makes another link.
    pub fn retire(&mut self, link: LinkId) {
        if let Some(key) = self.key(link) {
            if self.by_key.get(&key) == Some(&link.0) {
                self.by_key.remove(&key);
            }
        }
    }

    /// The link that `connect` would return for a key.
    pub fn find(&self, key: &K) -> Option<LinkId> {
        self.by_key.get(key).copied().map(LinkId)
    }

    /// The state of a link.
    #[inline]
    pub fn get(&self, link: LinkId) -> Option<&T> {
        Some(&self.rows.get(link.0 as usize)?.as_ref()?.link)
    }

    /// The state of a link, mutable.
    #[inline]
    pub fn get_mut(&mut self, link: LinkId) -> Option<&mut T> {
        Some(&mut self.row(link)?.link)
    }

    /// The key of a link.
    pub fn key(&self, link: LinkId) -> Option<K> {
        Some(self.rows.get(link.0 as usize)?.as_ref()?.key)
    }

    /// All links in order of number.
    pub fn iter(&self) -> impl Iterator<Item = (LinkId, &K, &T)> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(at, row)| {
            let row = row.as_ref()?;
            Some((LinkId(at as u32), &row.key, &row.link))
        })
    }

    /// The states of all links, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.iter_mut().flatten().map(|row| &mut row.link)
    }

    #[inline]
    fn row(&mut self, link: LinkId) -> Option<&mut Row<K, T>> {
        self.rows.get_mut(link.0 as usize)?.as_mut()
    }
}

/// The links of a rail whose only state of a link is the address.
pub type AddrLinks = LinkTable<RailAddr, ()>;

/// `addr_links!(Tx, field)`: implements [`Links`](crate::Links) by `self.field`, an [`AddrLinks`];
/// links are up at once.
#[macro_export]
macro_rules! addr_links {
    ($tx:ty, $field:ident) => {
        impl $crate::Links for $tx {
            fn connect(&mut self, to: &marline_wire::RailAddr) -> $crate::Connected {
                let link = self.$field.connect(*to, || ());
                $crate::Connected { link, up: true }
            }
            fn works(&mut self, _: $crate::LinkId) {}
            fn silent(&mut self, _: $crate::LinkId) {}
            fn reroute(&mut self, _: $crate::LinkId) -> bool {
                false
            }
            fn close(&mut self, link: $crate::LinkId) {
                self.$field.close(link);
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_lives_as_long_as_it_has_users() {
        let mut links = LinkTable::default();
        let a = links.connect("a", || 1);
        assert_eq!((links.connect("a", || 2), links.get(a)), (a, Some(&1)));
        let b = links.connect("b", || 3);
        assert_ne!(a, b);
        assert_eq!((links.close(a), links.get(a)), (None, Some(&1)));
        assert_eq!((links.close(a), links.get(a)), (Some(1), None));
        assert_eq!(links.find(&"a"), None);
        let c = links.connect("c", || 4);
        assert_eq!(c, a, "its number is free");
        assert_eq!(links.close(LinkId::NONE), None);
    }

    #[test]
    fn a_link_that_is_down_has_a_successor_while_others_still_hold_it() {
        let mut links = LinkTable::default();
        let old = links.connect("a", || 1);
        links.retire(old);
        let new = links.connect("a", || 2);
        assert_eq!((links.get(old), links.get(new)), (Some(&1), Some(&2)));
        assert_eq!(links.close(old), Some(1));
        assert_eq!(links.find(&"a"), Some(new), "the successor's entry stays");
    }
}
