//! Offers of ranks that agree on a group: each offer says which rank it is from and what that rank
//! can do. All offers have one length, whatever the rank's provider.

use crate::calls::{self, Call};
use crate::provider::Provider;
use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Bytes of a group's id and token; those of rank 0 are used.
const RANDOM_LEN: usize = 12;
const HOST_AT: usize = RANDOM_LEN;
const FLAGS_AT: usize = HOST_AT + 8;
const CALLS_AT: usize = FLAGS_AT + 1;
const DESCRIPTOR_LEN_AT: usize = CALLS_AT + 1;
const DESCRIPTOR_AT: usize = DESCRIPTOR_LEN_AT + 2;
/// Room for a member descriptor: providers of other versions may have longer ones.
const DESCRIPTOR_MAX: usize = 1_024 - DESCRIPTOR_AT;
const LEN: usize = DESCRIPTOR_AT + DESCRIPTOR_MAX;

/// The communicator's error handler does not end the job.
const HANDLES_ERRORS: u8 = 1;
/// Bit of an offer: the rank can do nonblocking broadcasts.
const REQUESTS: u8 = 1 << 1;

/// The flags of an offer.
pub fn flags(handles_errors: bool, requests: bool) -> u8 {
    (handles_errors as u8 * HANDLES_ERRORS) | (requests as u8 * REQUESTS)
}

/// An offer.
pub struct Offer([u8; LEN]);

impl Offer {
    /// The offer of this rank. A rank without a provider, or without random numbers, offers no
    /// descriptor.
    pub fn own(provider: Option<&Provider>, flags: u8) -> Offer {
        let mut bytes = [0; LEN];
        let random = fill_random(&mut bytes[..RANDOM_LEN]);
        bytes[HOST_AT..FLAGS_AT].copy_from_slice(&host().to_le_bytes());
        bytes[FLAGS_AT] = flags;
        bytes[CALLS_AT] = calls::wanted() as u8;
        let descriptor = provider.filter(|_| random).and_then(Provider::descriptor);
        if let Some(descriptor) = descriptor.filter(|descriptor| descriptor.len() <= DESCRIPTOR_MAX)
        {
            bytes[DESCRIPTOR_LEN_AT..DESCRIPTOR_AT]
                .copy_from_slice(&(descriptor.len() as u16).to_le_bytes());
            bytes[DESCRIPTOR_AT..DESCRIPTOR_AT + descriptor.len()].copy_from_slice(&descriptor);
        }
        Offer(bytes)
    }

    /// The bytes that the other ranks receive.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The offers of all ranks.
pub struct Offers {
    all: Vec<u8>,
    ranks: usize,
}

impl Offers {
    /// The offers of `ranks` ranks, one after another.
    pub fn new(all: Vec<u8>, ranks: usize) -> Offers {
        Offers { all, ranks }
    }

    fn each(&self) -> impl Iterator<Item = &[u8]> {
        self.all.chunks_exact(LEN).take(self.ranks)
    }

    /// Returns whether some rank's error handler of the communicator does not end the job.
    pub fn some_handles_errors(&self) -> bool {
        self.each()
            .any(|offer| offer[FLAGS_AT] & HANDLES_ERRORS != 0)
    }

    /// Says if all ranks can do nonblocking broadcasts.
    pub fn all_have_requests(&self) -> bool {
        self.each().all(|offer| offer[FLAGS_AT] & REQUESTS != 0)
    }

    /// Returns whether all ranks have a descriptor, of one length.
    pub fn are_complete(&self) -> bool {
        let mut lens = self.each().map(descriptor_len);
        let first = lens.next().unwrap_or(0);
        first > 0 && lens.all(|len| len == first)
    }

    /// All descriptors, one after another.
    pub fn descriptors(&self) -> Vec<u8> {
        self.each()
            .flat_map(|offer| &offer[DESCRIPTOR_AT..][..descriptor_len(offer)])
            .copied()
            .collect()
    }

    /// The group's id and token.
    pub fn identity(&self) -> (u64, u32) {
        let first = self.all.first_chunk::<RANDOM_LEN>().copied();
        let [id @ .., a, b, c, d] = first.unwrap_or_default();
        (u64::from_le_bytes(id), u32::from_le_bytes([a, b, c, d]))
    }

    /// The calls that the group carries, among those that all ranks want. Only broadcasts, if
    /// several ranks share a host: for the other calls the MPI's shared memory is faster there.
    pub fn calls(&self) -> c_int {
        let wanted = self
            .each()
            .fold(u8::MAX, |all, offer| all & offer[CALLS_AT]);
        match self.share_hosts() {
            true => wanted as c_int & Call::Bcast.bit(),
            false => wanted as c_int,
        }
    }

    /// Returns whether two ranks or more are of one host.
    pub fn share_hosts(&self) -> bool {
        let mut hosts: Vec<&[u8]> = self.each().map(|o| &o[HOST_AT..FLAGS_AT]).collect();
        hosts.sort_unstable();
        hosts.windows(2).any(|pair| pair[0] == pair[1])
    }
}

/// Bytes of the descriptor of an offer.
fn descriptor_len(offer: &[u8]) -> usize {
    let len = u16::from_le_bytes([offer[DESCRIPTOR_LEN_AT], offer[DESCRIPTOR_LEN_AT + 1]]);
    usize::from(len).min(DESCRIPTOR_MAX)
}

/// A number that is equal for all processes of this host (of one container, if containers divide
/// the host).
fn host() -> u64 {
    let mut hasher = DefaultHasher::new();
    std::fs::read("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .hash(&mut hasher);
    std::fs::read_link("/proc/self/ns/net")
        .unwrap_or_default()
        .hash(&mut hasher);
    hasher.finish()
}

fn fill_random(bytes: &mut [u8]) -> bool {
    // SAFETY: the bytes are there, as many as is said.
    let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    filled == bytes.len() as isize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offers of ranks with these hosts, flags and descriptors.
    fn offers(ranks: &[(u64, u8, &[u8])]) -> Offers {
        let of = |&(host, flags, descriptor): &(u64, u8, &[u8])| {
            let mut offer = Offer::own(None, flags).0;
            offer[HOST_AT..FLAGS_AT].copy_from_slice(&host.to_le_bytes());
            offer[DESCRIPTOR_LEN_AT] = descriptor.len() as u8;
            offer[DESCRIPTOR_AT..DESCRIPTOR_AT + descriptor.len()].copy_from_slice(descriptor);
            offer
        };
        Offers::new(ranks.iter().flat_map(of).collect(), ranks.len())
    }

    #[test]
    fn cards_of_all_ranks_or_none_make_a_group() {
        let all = offers(&[(1, 0, b"one"), (2, 0, b"two"), (3, 0, b"six")]);
        assert!(all.are_complete() && !all.share_hosts());
        assert_eq!(all.descriptors(), b"onetwosix");
        assert!(!offers(&[(1, 0, b"one"), (2, 0, b"")]).are_complete());
        assert!(!offers(&[(1, 0, b"one"), (2, 0, b"three")]).are_complete());
        assert!(!offers(&[(1, 0, b""), (2, 0, b"")]).are_complete());
    }

    #[test]
    fn one_rank_that_handles_errors_is_seen_by_all() {
        let (dies, handles) = (flags(false, true), flags(true, true));
        let all = offers(&[(1, dies, b"a"), (2, handles, b"b")]);
        assert!(all.some_handles_errors() && all.all_have_requests());
        let all = offers(&[(1, dies, b"a"), (1, flags(false, false), b"b")]);
        assert!(!all.some_handles_errors() && !all.all_have_requests());
        assert!(all.share_hosts());
        assert_eq!(all.calls() & !Call::Bcast.bit(), 0);
    }
}
