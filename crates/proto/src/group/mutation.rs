//! Deliberate mistakes of a group, each against one invariant, to prove that the simulator notices
//! them. Without the feature `mutation` every query is `false` at compile time.

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupMutation {
    /// The acknowledgement of some member is not required.
    ForgetAck,
    /// The window advances with the fastest member.
    FreeEarly,
    /// The root sends beyond its window.
    BoundlessWindow,
    /// Borrowed memory is freed once everything was sent.
    EndAtOnce,
    /// Duplicate chunks are stored again.
    DeliverTwice,
    /// A run of chunks continues over chunks that are already stored.
    RunOn,
    /// Packets with a wrong token, epoch or sender are accepted.
    AcceptStranger,
    /// Packets of another group are accepted.
    MixGroups,
    /// Chunks go to any broadcast in progress of their root.
    MixBroadcasts,
    /// A chunk is accepted whatever its sum.
    IgnoreSum,
    /// A receive ends one chunk early.
    EndEarly,
    /// A chunk is acknowledged before its bytes are stored.
    AckBeforeCommit,
    /// Early bytes are not delivered.
    LoseEarly,
    /// Early bytes are delivered after the packets of a batch, and overwrite correct bytes.
    HandOverLate,
    /// Early memory is unbounded.
    BoundlessEarly,
    /// The copies that co-roots retain are unbounded.
    BoundlessRetained,
    /// Copies are never freed.
    KeepCopies,
    /// Receives from a dead root never end.
    WaitForDead,
    /// Acknowledgements of a dead member are awaited.
    AwaitDead,
    /// Members of a dead co-root's part are not taken over.
    ForgetOrphans,
    /// A member abandons the group one broadcast late.
    LeaveLate,
    /// Members that receive no multicast do not report it.
    HideUnreachable,
    /// A chunk is rebuilt from a parity although another chunk is missing too.
    TrustParity,
    /// A missing chunk is requested only once.
    AskOnce,
    /// A chunk multicast again in vain is never sent by unicast.
    RepairAllOnly,
    /// Chunks are never sent in pieces.
    WholeOnly,
    /// A chunk counts as arrived when one of its pieces has arrived.
    PieceIsWhole,
    /// Members are not asked for their progress.
    NeverRemind,
    /// A member that has closed the group does not answer TAILs.
    RetireSilent,
    /// Packets that arrived before are accepted again.
    AcceptReplays,
    /// Packets with a tag for another member are accepted.
    AcceptMisdirected,
    /// Packets are accepted whatever their tag. (A mistake of the simulator's members: the owner of
    /// a group checks tags.)
    IgnoreTag,
}

impl GroupMutation {
    /// All mutations.
    pub const ALL: [GroupMutation; 32] = [
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
        GroupMutation::BoundlessRetained,
        GroupMutation::KeepCopies,
        GroupMutation::WaitForDead,
        GroupMutation::AwaitDead,
        GroupMutation::ForgetOrphans,
        GroupMutation::LeaveLate,
        GroupMutation::HideUnreachable,
        GroupMutation::TrustParity,
        GroupMutation::AskOnce,
        GroupMutation::RepairAllOnly,
        GroupMutation::WholeOnly,
        GroupMutation::PieceIsWhole,
        GroupMutation::NeverRemind,
        GroupMutation::RetireSilent,
        GroupMutation::AcceptReplays,
        GroupMutation::AcceptMisdirected,
        GroupMutation::IgnoreTag,
    ];
}
