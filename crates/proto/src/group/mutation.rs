//! Deliberate mistakes of a group, each against one promise, so that the simulator can prove that
//! it would notice. Without the feature `mutation` every question is answered `false` at compile
//! time.

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupMutation {
    /// One member's acknowledgement is not waited for.
    ForgetAck,
    /// The window moves with the fastest member.
    FreeEarly,
    /// The root sends beyond its window.
    BoundlessWindow,
    /// Lent memory counts as free once all has left.
    EndAtOnce,
    /// Chunks that came before are taken again.
    DeliverTwice,
    /// A run of chunks goes on over those that are here.
    RunOn,
    /// Packets with a wrong token, epoch or sender are taken.
    AcceptStranger,
    /// Packets of another group are taken.
    MixGroups,
    /// Chunks go to whichever broadcast of their root is under way.
    MixBroadcasts,
    /// A chunk counts whatever its sum.
    IgnoreSum,
    /// A receive ends one chunk early.
    EndEarly,
    /// A chunk counts before its bytes are there.
    AckBeforeCommit,
    /// Early bytes are not handed over.
    LoseEarly,
    /// Early bytes are handed over after the packets of a batch, over those that are right.
    HandOverLate,
    /// Early memory has no bound.
    BoundlessEarly,
    /// The copies that co-roots keep have no bound.
    BoundlessKept,
    /// Copies are kept for ever.
    KeepCopies,
    /// Receives wait for a dead root.
    WaitForDead,
    /// A dead member is waited for.
    AwaitDead,
    /// Members of a dead co-root's part are not taken over.
    ForgetOrphans,
    /// A member leaves the group one broadcast late.
    LeaveLate,
    /// Members that hear no multicast do not say so.
    HideDeaf,
    /// A parity counts for a chunk although another is missing, too.
    TrustParity,
    /// A missing chunk is asked for once.
    AskOnce,
    /// A chunk that was multicast again in vain is not sent to one alone.
    RepairAllOnly,
    /// Chunks are never sent in pieces.
    WholeOnly,
    /// A chunk counts when one of its pieces is here.
    PieceIsWhole,
    /// Nobody is asked how far it is.
    NeverRemind,
    /// A member that has closed the group does not answer who asks how far it is.
    RetireDumb,
}

impl GroupMutation {
    /// All of them.
    pub const ALL: [GroupMutation; 29] = [
        GroupMutation::ForgetAck,
        GroupMutation::FreeEarly,
        GroupMutation::BoundlessWindow,
        GroupMutation::EndAtOnce,
        GroupMutation::DeliverTwice,
        GroupMutation::RunOn,
        GroupMutation::AcceptStranger,
        GroupMutation::MixGroups,
        GroupMutation::MixBroadcasts,
        GroupMutation::IgnoreSum,
        GroupMutation::EndEarly,
        GroupMutation::AckBeforeCommit,
        GroupMutation::LoseEarly,
        GroupMutation::HandOverLate,
        GroupMutation::BoundlessEarly,
        GroupMutation::BoundlessKept,
        GroupMutation::KeepCopies,
        GroupMutation::WaitForDead,
        GroupMutation::AwaitDead,
        GroupMutation::ForgetOrphans,
        GroupMutation::LeaveLate,
        GroupMutation::HideDeaf,
        GroupMutation::TrustParity,
        GroupMutation::AskOnce,
        GroupMutation::RepairAllOnly,
        GroupMutation::WholeOnly,
        GroupMutation::PieceIsWhole,
        GroupMutation::NeverRemind,
        GroupMutation::RetireDumb,
    ];
}
