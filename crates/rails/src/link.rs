//! Links: a rail's connections to single rails of its peers.
//!
//! A link is made by [`Links::connect`] and named by a number of the rail's own. Whoever asks for
//! the link to an address that has one gets the same, and it lives until each of them has closed
//! it.
//! A link that is down carries nothing any more: its users close it and connect anew.

use marline_wire::RailAddr;
use std::collections::HashMap;
use std::hash::Hash;

/// Names a link of one rail. The number of a link that nobody has any more may be given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId(pub u32);

impl LinkId {
    /// No link: what is sent on it is lost.
    pub const NONE: LinkId = LinkId(u32::MAX);
}

/// The answer to [`Links::connect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    /// The link.
    pub link: LinkId,
    /// It carries packets already; else an event tells when it does, or that it never will.
    pub up: bool,
}

/// Why a link is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// It was to be made, and nobody listens at the address, as its host says (or who resets
    /// connections for it): perhaps the process is gone. Never of a link that was up, nor of a peer
    /// that does not want us.
    Refused,
    /// Nobody answered in time.
    Unanswered,
    /// The peer closed it.
    Closed,
    /// It broke, with the errno.
    Broken(i32),
    /// It broke: an adapter ended a request with this status (`ibv_wc_status`).
    Completion(i32),
}

/// Making and ending links.
pub trait Links {
    /// The link to a peer's rail, made if there is none: one more user of it. Where the rail knows
    /// that an address leads nowhere, the link is one that loses everything. A connection that came
    /// in is the link of the address that it named.
    fn connect(&mut self, to: &RailAddr) -> Connected;

    /// Packets that were sent on the link arrive, as its user knows from answers, whichever way
    /// those came. A rail whose kernel asks its neighbours for the addresses of their cards tells
    /// it that there is no need: the question would have to be answered on the same link.
    fn works(&mut self, link: LinkId);

    /// Nothing that was sent on the link is acknowledged, as is said again and again while that
    /// lasts. A rail whose neighbours may wait for their kernels to ask for its card's address
    /// tells them that.
    fn silent(&mut self, link: LinkId);

    /// Nothing that was sent on the link was acknowledged for long: another way through the network
    /// may be tried, by a connection with another source port for example. A rail without
    /// connections is given another flow instead. Returns whether another way is tried.
    fn reroute(&mut self, link: LinkId) -> bool;

    /// One user less; the last one ends the link. No event speaks of the link after that.
    fn close(&mut self, link: LinkId);
}

/// A rail's links by number and by address, with how many use each. `K` is the part of an address
/// that tells links apart, `T` what the rail keeps of a link.
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
    /// The link of a key, made by `make` if there is none; it has one user more.
    pub fn connect(&mut self, key: K, make: impl FnOnce() -> T) -> LinkId {
        let link = self.find(&key).unwrap_or_else(|| self.add(key, make()));
        if let Some(row) = self.row(link) {
            row.users += 1;
        }
        link
    }

    /// A link without users, which takes the place of any other with this key.
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

    /// One user less. The last one gets what the rail keeps of the link, which is gone then.
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

    /// The next `connect` to the link's key makes another link, as this one is down.
    pub fn retire(&mut self, link: LinkId) {
        if let Some(key) = self.key(link) {
            if self.by_key.get(&key) == Some(&link.0) {
                self.by_key.remove(&key);
            }
        }
    }

    /// The link that `connect` would give for a key.
    pub fn find(&self, key: &K) -> Option<LinkId> {
        self.by_key.get(key).copied().map(LinkId)
    }

    /// A link.
    #[inline]
    pub fn get(&self, link: LinkId) -> Option<&T> {
        Some(&self.rows.get(link.0 as usize)?.as_ref()?.link)
    }

    /// A link, to be changed.
    #[inline]
    pub fn get_mut(&mut self, link: LinkId) -> Option<&mut T> {
        Some(&mut self.row(link)?.link)
    }

    /// Its key.
    pub fn key(&self, link: LinkId) -> Option<K> {
        Some(self.rows.get(link.0 as usize)?.as_ref()?.key)
    }

    /// All links, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (LinkId, &K, &T)> {
        let rows = self.rows.iter().enumerate();
        rows.filter_map(|(at, row)| {
            let row = row.as_ref()?;
            Some((LinkId(at as u32), &row.key, &row.link))
        })
    }

    /// All links, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.iter_mut().flatten().map(|row| &mut row.link)
    }

    #[inline]
    fn row(&mut self, link: LinkId) -> Option<&mut Row<K, T>> {
        self.rows.get_mut(link.0 as usize)?.as_mut()
    }
}

/// The links of a rail that keeps nothing of a link but its address.
pub type AddrLinks = LinkTable<RailAddr, ()>;

/// `addr_links!(Tx, field)`: the links of a rail are those of `self.field`, an [`AddrLinks`], and
/// up at once.
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
