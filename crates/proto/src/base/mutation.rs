//! Deliberate mistakes, each against one invariant, to prove that the simulator notices them.
//! Without the feature `mutation` every query is `false` at compile time.

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Duplicate fragments are accepted.
    ForgetFragments,
    /// Messages that were already matched are accepted again.
    ForgetMessages,
    /// A packet with a bad payload is acknowledged.
    AckBeforeCommit,
    /// A packet reuses the previous packet's number.
    ReuseNumber,
    /// A send completes when its first fragment is acknowledged.
    FreeLogEarly,
    /// A message that left before it was logged is never logged.
    LeaveUnlogged,
    /// A send that ends before its bytes are delivered leaves them in its caller's memory.
    ForgetBorrowed,
    /// A payload is accepted whatever its sum.
    IgnoreSum,
    /// Packets that continue a fragment in its batch are accepted whatever their sums.
    TrustRuns,
    /// Messages are matched in order of arrival.
    SkipOrder,
    /// A message is reported before an earlier one of its receive.
    TellEarly,
    /// Packets with other endpoints' tokens are accepted.
    IgnoreToken,
    /// Lost data is not retransmitted.
    ForgetLost,
    /// Packets in flight on a path that went down are not requeued.
    ForgetMoved,
    /// Senders ignore credit.
    IgnoreCredit,
    /// Receives from a dead peer stay posted.
    ForgetReceives,
    /// Receives from any source are not told of a death.
    HideDeath,
    /// No peer timeout.
    Immortal,
    /// The peer timeout is doubled.
    Patient,
    /// Credit is returned twice, and data beyond its memory is accepted.
    Hoard,
    /// Heads are accepted whatever their CRC.
    TrustHeads,
    /// Packets are accepted whatever their tag.
    IgnoreTag,
    /// Packets that arrived before are accepted again.
    AcceptReplays,
    /// A send ends while a rail still reads its memory.
    ReadLate,
    /// Correct bytes are overwritten before the new bytes' sum is verified.
    WriteUnchecked,
    /// Bytes of a remote write are stored before their sum is verified.
    ShowUnverified,
    /// Duplicate bytes of a remote write are stored again.
    ShowAgain,
    /// The end of a remote write is stored as soon as it arrives.
    ShowEndEarly,
    /// Rails write directly into memory that the program sees during the operation.
    OpenVisible,
    /// A receive completes one block early.
    CompleteEarly,
    /// The grant budget is not returned.
    LeakGrants,
    /// Returned credit is not reported to the peer.
    KeepCredit,
    /// Packets that wait on a path whose rail is down are not requeued.
    Strand,
    /// A written fragment is accepted whatever its sum.
    TrustWrites,
    /// Messages end before their rkeys do.
    KeepKeys,
    /// A written fragment is stored from packets while a write of it may still land.
    WriteLate,
    /// Direct writes use sums that are blind to order, and are accepted.
    BlindSums,
    /// Direct writes land on bytes that have landed already. (A mistake of the simulator's rails.)
    LandAgain,
    /// A write notification on an unreliable connection is accepted whichever writes landed. (A
    /// mistake of the simulator's rails.)
    TrustImmediates,
    /// Stuck connections are not replaced.
    LeaveStuck,
    /// Idle eviction closes connections with data in flight. (A mistake of the simulator's rails.)
    EvictEarly,
    /// A packet refused by its rail sets no timer.
    Unasked,
    /// A refused remote write is reported as done.
    HideRefusal,
    /// A refused remote write is forgotten before its writer knows of the refusal.
    ForgetRefusal,
    /// Peers can still write into deregistered memory.
    WriteClosed,
    /// Peers can still read deregistered memory.
    ReadClosed,
    /// Memory under a reused key is assumed to have the length of the key's former memory.
    KeepLength,
    /// Every retransmission of a packet sends all of its frames, whatever their length and however
    /// long the peer is silent.
    ResendAll,
    /// Replaced deadlines stay in the queue until they are due.
    KeepDeadlines,
    /// Frames queued for retransmission to a dead peer are not dropped.
    KeepDead,
    /// Grants ignore the budget.
    Overgrant,
    /// Unexpected messages are charged as if they had no payload.
    Uncharged,
    /// The sender's log has no bound.
    BoundlessLog,
    /// Unexpected messages use up the log's room.
    SharedLog,
    /// A path comparison takes the path down after its first round.
    Hasty,
    /// No path ever goes down.
    Cling,
    /// Refusals are believed from whatever path they come.
    BelieveRefusals,
    /// A connection that ends counts like one that was refused.
    BelieveResets,
    /// A single kind of refusal is believed at once.
    BelieveHiccups,
    /// Another process of a host that refuses counts as reached by what arrived there before.
    TrustSiblings,
    /// The standby rail of a rail that refuses is not probed.
    AskNoStandby,
    /// PMTU black holes are taken for chance loss.
    TrustSizes,
    /// Acks are sent on one path even if no path is healthy.
    SayOnce,
    /// An atomic operation is done twice.
    RepeatAtomic,
    /// RPCs still find deregistered memory.
    RpcClosed,
    /// RPCs find memory whatever key they name.
    AnyKey,
    /// Lost RPCs and lost replies are not retransmitted.
    ForgetRpcs,
    /// Only the first of the operations that share an RPC is done.
    ForgetAggregated,
    /// An operation in parts is over with its first.
    EndWithPart,
    /// The last piece of a remote operation of several pieces is forgotten.
    ForgetPiece,
    /// An operation is counted once per part.
    CountParts,
    /// A region counts an operation twice.
    CountTwice,
    /// An operation in parts is counted by whatever region has its key at completion.
    CountAnywhere,
    /// A query for the endpoint at an address accepts the answer to another query.
    AnyAnswer,
    /// Unused endpoints answer such queries.
    AnswerUnused,
    /// A read message is accepted when its read has begun.
    PullEarly,
    /// A read segment is accepted whatever its sum.
    TrustReads,
    /// A send ends while its peer may still read its memory.
    KeepOffer,
    /// A send ends while its memory is open to a rail's writes.
    KeepSource,
    /// The memory of a send is closed while writes of it are in flight.
    CloseEarly,
    /// A rail whose writes and reads never end is awaited forever.
    WaitOn,
    /// Rails are not told that their peers are silent.
    HideSilence,
    /// Traffic of a silent path is left to other paths although these are silent too.
    LeaveToSilent,
    /// The death of a stranger ends receives from any source.
    MournStrangers,
    /// A packet's number may be as far ahead as its sender likes.
    TrustNumbers,
    /// Messages may come beyond the credit.
    TrustCredit,
    /// A path counts its ECMP flows by itself, although other paths share its link.
    CountFlowsAlone,
}

impl Mutation {
    /// All of them that the simulator hunts. Not `Hasty`: to leave a path that works costs time and
    /// breaks no promise, so it cannot complain (`tests/pair.rs` notices it); nor `Cling`
    /// and `TrustSizes`, of which `failover.rs` of the simulator complains; nor `SayOnce`, which
    /// costs time, too (`tests/partial.rs`); nor `TrustImmediates`,
    /// `LeaveStuck`, `EvictEarly`, `PullEarly`, `TrustReads`, `KeepOffer`, `KeepSource`,
    /// `CloseEarly` and `WaitOn`, of connections of InfiniBand (`verbs.rs` of the simulator); nor
    /// `HideSilence`, which costs a second in seeds (`neighbours.rs`), and `BelieveHiccups` and
    /// `TrustSiblings`, of which `outages.rs` and `siblings.rs` complain.
    pub const ALL: [Mutation; 70] = [
        Mutation::ForgetFragments,
        Mutation::ForgetMessages,
        Mutation::AckBeforeCommit,
        Mutation::ReuseNumber,
        Mutation::FreeLogEarly,
        Mutation::LeaveUnlogged,
        Mutation::ForgetBorrowed,
        Mutation::IgnoreSum,
        Mutation::TrustRuns,
        Mutation::SkipOrder,
        Mutation::TellEarly,
        Mutation::IgnoreToken,
        Mutation::ForgetLost,
        Mutation::ForgetMoved,
        Mutation::IgnoreCredit,
        Mutation::ForgetReceives,
        Mutation::HideDeath,
        Mutation::Immortal,
        Mutation::Patient,
        Mutation::Hoard,
        Mutation::TrustHeads,
        Mutation::IgnoreTag,
        Mutation::AcceptReplays,
        Mutation::MournStrangers,
        Mutation::TrustNumbers,
        Mutation::TrustCredit,
        Mutation::ReadLate,
        Mutation::WriteUnchecked,
        Mutation::ShowUnverified,
        Mutation::ShowAgain,
        Mutation::ShowEndEarly,
        Mutation::OpenVisible,
        Mutation::CompleteEarly,
        Mutation::LeakGrants,
        Mutation::KeepCredit,
        Mutation::Strand,
        Mutation::TrustWrites,
        Mutation::KeepKeys,
        Mutation::WriteLate,
        Mutation::BlindSums,
        Mutation::LandAgain,
        Mutation::Unasked,
        Mutation::HideRefusal,
        Mutation::ForgetRefusal,
        Mutation::WriteClosed,
        Mutation::ReadClosed,
        Mutation::KeepLength,
        Mutation::ResendAll,
        Mutation::KeepDeadlines,
        Mutation::KeepDead,
        Mutation::Overgrant,
        Mutation::Uncharged,
        Mutation::BoundlessLog,
        Mutation::SharedLog,
        Mutation::BelieveRefusals,
        Mutation::BelieveResets,
        Mutation::AskNoStandby,
        Mutation::RepeatAtomic,
        Mutation::RpcClosed,
        Mutation::AnyKey,
        Mutation::ForgetRpcs,
        Mutation::ForgetAggregated,
        Mutation::EndWithPart,
        Mutation::ForgetPiece,
        Mutation::CountParts,
        Mutation::CountTwice,
        Mutation::CountAnywhere,
        Mutation::AnyAnswer,
        Mutation::AnswerUnused,
        Mutation::LeaveToSilent,
    ];
}
