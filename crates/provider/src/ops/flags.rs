//! Translates libfabric's flag bits to the engine's options. Pure, and branch-free per message.

use crate::abi::*;
use crate::base::boundary::Errno;
use marline_engine::OpFlags;

/// Completion levels that require delivery to the peer, which satisfies transmit-complete, too.
const NEEDS_PEER: u64 = FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE;

/// Flags of send calls; FI_MORE is a hint that the engine does not need.
const SEND_KNOWN: u64 = FI_COMPLETION
    | FI_INJECT
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_MATCH_COMPLETE
    | FI_REMOTE_CQ_DATA
    | FI_FENCE
    | FI_MORE
    | FI_MSG
    | FI_TAGGED
    | FI_SEND;

/// Flags of remote reads, writes and atomics. They complete only after the memory was read or
/// written, which satisfies every completion level.
const RMA_KNOWN: u64 = FI_COMPLETION
    | FI_INJECT_COMPLETE
    | FI_TRANSMIT_COMPLETE
    | FI_DELIVERY_COMPLETE
    | FI_INJECT
    | FI_FENCE
    | FI_REMOTE_CQ_DATA
    | FI_MORE
    | FI_RMA
    | FI_ATOMIC
    | FI_READ
    | FI_WRITE;

const RECV_KNOWN: u64 = FI_COMPLETION
    | FI_MULTI_RECV
    | FI_PEEK
    | FI_CLAIM
    | FI_DISCARD
    | FI_MORE
    | FI_MSG
    | FI_TAGGED
    | FI_RECV;

/// The binding of one direction of an endpoint: default flags, and whether calls without flags
/// write completion entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Binding {
    /// `op_flags` of the endpoint's attributes.
    pub op_flags: u64,
    /// Bound with FI_SELECTIVE_COMPLETION: only calls with FI_COMPLETION write completion entries.
    pub selective: bool,
}

impl Binding {
    fn wants_entry(self, flags: u64) -> bool {
        (flags & FI_COMPLETION != 0) | !self.selective
    }

    /// Options of a send with valid flags.
    pub fn send(self, flags: u64) -> OpFlags {
        OpFlags {
            completion: self.wants_entry(flags),
            delivery_complete: flags & NEEDS_PEER != 0,
            match_complete: flags & FI_MATCH_COMPLETE != 0,
            inject: flags & FI_INJECT != 0,
            ..OpFlags::default()
        }
    }

    /// Options of `fi_sendmsg`, whose flags replace the endpoint's.
    pub fn sendmsg(self, flags: u64) -> Result<OpFlags, Errno> {
        if flags & !SEND_KNOWN != 0 {
            return Err(Errno::BADFLAGS);
        }
        Ok(self.send(flags))
    }

    /// Options of `fi_writemsg`, whose flags replace the endpoint's.
    pub fn writemsg(self, flags: u64) -> Result<OpFlags, Errno> {
        if flags & !RMA_KNOWN != 0 {
            return Err(Errno::BADFLAGS);
        }
        Ok(self.send(flags))
    }

    /// Options of `fi_readmsg`, and of `fi_atomicmsg` and its variants, which carry no remote CQ
    /// data.
    pub fn readmsg(self, flags: u64) -> Result<OpFlags, Errno> {
        if flags & FI_REMOTE_CQ_DATA != 0 {
            return Err(Errno::BADFLAGS);
        }
        self.writemsg(flags)
    }

    /// Options of a receive with valid flags.
    pub fn recv(self, flags: u64) -> OpFlags {
        OpFlags {
            // A peek always writes a completion entry.
            completion: self.wants_entry(flags) | (flags & FI_PEEK != 0),
            multi_recv: flags & FI_MULTI_RECV != 0,
            peek: flags & FI_PEEK != 0,
            claim: flags & FI_CLAIM != 0,
            discard: flags & FI_DISCARD != 0,
            ..OpFlags::default()
        }
    }

    /// Options of `fi_recvmsg`, whose flags replace the endpoint's.
    pub fn recvmsg(self, flags: u64) -> Result<OpFlags, Errno> {
        if flags & !RECV_KNOWN != 0 {
            return Err(Errno::BADFLAGS);
        }
        // FI_DISCARD requires FI_PEEK or FI_CLAIM.
        if flags & (FI_DISCARD | FI_PEEK | FI_CLAIM) == FI_DISCARD {
            return Err(Errno::INVAL);
        }
        Ok(self.recv(flags))
    }
}

/// Options of `fi_inject` and its variants: the buffer is free on return, and no completion entry
/// is written.
pub(crate) const INJECT: OpFlags = OpFlags {
    completion: false,
    delivery_complete: false,
    match_complete: false,
    inject: true,
    multi_recv: false,
    peek: false,
    claim: false,
    discard: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    const SELECTIVE: Binding = Binding {
        op_flags: FI_COMPLETION,
        selective: true,
    };
    const ALWAYS: Binding = Binding {
        op_flags: 0,
        selective: false,
    };

    #[test]
    fn selective_binding_completes_only_what_asks() {
        assert!(SELECTIVE.send(SELECTIVE.op_flags).completion);
        // Open MPI's acknowledgement of synchronous sends: sendmsg without flags writes no entry.
        assert!(!SELECTIVE.sendmsg(0).unwrap().completion);
        assert!(SELECTIVE.sendmsg(FI_COMPLETION).unwrap().completion);
        assert!(ALWAYS.sendmsg(0).unwrap().completion);
        assert!(ALWAYS.recvmsg(FI_MULTI_RECV).unwrap().multi_recv);
    }

    #[test]
    fn delivery_complete_comes_from_the_call_or_from_the_defaults() {
        let ep = Binding {
            op_flags: FI_COMPLETION | FI_DELIVERY_COMPLETE,
            selective: true,
        };
        assert!(ep.send(ep.op_flags).delivery_complete);
        assert!(!ep.sendmsg(FI_COMPLETION).unwrap().delivery_complete);
        assert!(ep.sendmsg(FI_TRANSMIT_COMPLETE).unwrap().delivery_complete);
        assert!(!ep.sendmsg(FI_INJECT_COMPLETE).unwrap().delivery_complete);
        let matched = ep.sendmsg(FI_MATCH_COMPLETE).unwrap();
        assert!(matched.match_complete && !matched.delivery_complete);
    }

    #[test]
    fn inject_asks_for_nothing_else() {
        assert_eq!(
            OpFlags {
                inject: true,
                ..OpFlags::default()
            },
            INJECT
        );
        let with_entry = SELECTIVE.sendmsg(FI_INJECT | FI_COMPLETION).unwrap();
        assert!(with_entry.inject && with_entry.completion);
    }

    #[test]
    fn peek_claim_and_discard_are_passed_through() {
        let peek = SELECTIVE.recvmsg(FI_PEEK | FI_CLAIM).unwrap();
        assert!(peek.peek && peek.claim && peek.completion && !peek.discard);
        let drop_it = SELECTIVE
            .recvmsg(FI_CLAIM | FI_DISCARD | FI_COMPLETION)
            .unwrap();
        assert!(!drop_it.peek && drop_it.claim && drop_it.discard && drop_it.completion);
        assert_eq!(SELECTIVE.recvmsg(FI_DISCARD), Err(Errno::INVAL));
    }

    #[test]
    fn unknown_flags_are_refused() {
        assert_eq!(SELECTIVE.sendmsg(FI_PEEK), Err(Errno::BADFLAGS));
        assert_eq!(SELECTIVE.writemsg(FI_TAGGED), Err(Errno::BADFLAGS));
        assert_eq!(SELECTIVE.recvmsg(FI_INJECT), Err(Errno::BADFLAGS));
    }
}
