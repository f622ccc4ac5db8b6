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
    /// A message whose packet left before it was logged is never logged.
    LeaveUnlogged,
    /// A borrowed send that completes before its delivery gets a buffer of its own, but its bytes
    /// are not copied into it.
    ForgetBorrowed,
    /// A payload is accepted whatever its sum.
    IgnoreSum,
    /// Packets that continue a fragment in its batch are accepted whatever their sums.
    TrustRuns,
    /// Messages are matched in order of arrival.
    SkipOrder,
    /// A message is reported before an earlier one that the same receive could have matched.
    ReportEarly,
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
    /// Receives from any source do not fail at a death.
    HideDeath,
    /// No peer timeout.
    Immortal,
    /// The peer timeout is doubled.
    LongPeerTimeout,
    /// Credit is returned twice, and data beyond its memory is accepted.
    Hoard,
    /// Heads are accepted whatever their CRC.
    TrustHeads,
    /// Packets are accepted whatever their tag.
    IgnoreTag,
    /// Payload sums have no key, although the job demands it.
    UnkeyedSums,
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
    /// Packets in flight on a path whose rail is down are not requeued.
    Strand,
    /// A written fragment is accepted whatever its sum.
    TrustWrites,
    /// Messages end before their rkeys.
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
    /// A packet that its rail refused sets no timer.
    Unasked,
    /// An eager remote write ends when its packets are acknowledged, without an answer.
    EndUnanswered,
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
    /// Every retransmission of a packet sends all of its frames, however long they are and however
    /// long the peer is silent.
    ResendAll,
    /// Replaced deadlines stay in the queue until they are due.
    KeepDeadlines,
    /// Frames queued for retransmission to a dead peer are not dropped.
    KeepDead,
    /// Grants ignore the budget.
    Overgrant,
    /// Unexpected messages are charged for as if they had no payload.
    Uncharged,
    /// The sender's log has no bound.
    BoundlessLog,
    /// Unexpected messages use up the log's room.
    SharedLog,
    /// A path comparison takes the path down after its first round.
    Hasty,
    /// No path ever goes down.
    Cling,
    /// A refusal counts whichever path it comes from.
    BelieveRefusals,
    /// A connection that ended counts like a refused one.
    BelieveResets,
    /// A single kind of refusal is believed at once.
    BelieveHiccups,
    /// Packets that reached another process at a refusing address before the refusals count as if
    /// they had reached it afterwards.
    TrustSiblings,
    /// The standby rail of a rail that refuses is not probed.
    AskNoStandby,
    /// PMTU black holes are taken for chance loss.
    TrustSizes,
    /// Acks are sent on one path only, even if no path is healthy.
    SayOnce,
    /// An atomic operation is done twice.
    RepeatAtomic,
    /// RPCs still find deregistered memory.
    RpcClosed,
    /// RPCs find memory with any key.
    AnyKey,
    /// Lost RPCs and lost replies are not retransmitted.
    ForgetRpcs,
    /// Only the first of the operations that share an RPC is done.
    ForgetAggregated,
    /// An operation in parts ends with its first part.
    EndWithPart,
    /// The last piece of a remote operation of several pieces is forgotten.
    ForgetPiece,
    /// An operation is counted once per part.
    CountParts,
    /// A region counts an operation twice.
    CountTwice,
    /// An operation in parts is counted by whatever region has its key when it completes.
    CountAnywhere,
    /// A query for the endpoint at an address accepts the answer to another query.
    AnyAnswer,
    /// Unused endpoints answer such queries.
    AnswerUnused,
    /// A read message is accepted when its read has begun.
    PullEarly,
    /// A read segment is accepted whatever its sum.
    TrustReads,
    /// A send ends while its peer can still read its memory.
    KeepAdvertisement,
    /// A send ends while its memory is open to a rail's writes.
    KeepSource,
    /// The memory of a send is closed while writes of it are in flight.
    CloseEarly,
    /// A rail whose writes and reads never end is waited for forever.
    WaitOn,
    /// Rails are not told that their peers are silent.
    HideSilence,
    /// Traffic of a silent path moves to other paths although they are silent too.
    LeaveToSilent,
    /// The death of a stranger ends receives from any source.
    MournStrangers,
    /// Addresses of strangers get any number of bytes.
    TrustAddresses,
    /// An ack validates a stranger's address.
    TrustAcks,
    /// Strangers that prove no address are kept until the peer timeout.
    KeepUnvalidated,
    /// Versions that were altered on the way are believed.
    TalkedDown,
    /// A packet counts as a peer's although its HELLO names another endpoint.
    TrustNames,
    /// A packet's number may be arbitrarily far ahead.
    TrustNumbers,
    /// Messages may come beyond the credit.
    TrustCredit,
    /// Each path counts ECMP flows for itself, although other paths share its link.
    CountFlowsAlone,
}

impl Mutation {
    /// All mutations that the simulator must notice in its ordinary seeds. The others have tests of
    /// their own: `Hasty` (leaving a path that works costs time and breaks no promise) in
    /// `tests/mutations/pair.rs`; `Cling` and `TrustSizes` in `failover.rs` of the simulator;
    /// `SayOnce`, which costs time only, in `tests/mutations/partial.rs`; `TrustImmediates`,
    /// `LeaveStuck`, `EvictEarly`, `PullEarly`, `TrustReads`, `KeepAdvertisement`, `KeepSource`,
    /// `CloseEarly` and `WaitOn`, about InfiniBand connections, in `verbs.rs` of the simulator;
    /// `TrustAcks`, `KeepUnvalidated` and `TrustNames`, about strangers, in
    /// `tests/mutations/validation.rs` and `strangers.rs`, `TalkedDown` in `versions.rs`;
    /// `HideSilence`, which costs a second, in `neighbours.rs`; `BelieveHiccups` and
    /// `TrustSiblings` in `outages.rs` and `siblings.rs`.
    pub const ALL: [Mutation; 73] = [
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
        Mutation::ReportEarly,
        Mutation::IgnoreToken,
        Mutation::ForgetLost,
        Mutation::ForgetMoved,
        Mutation::IgnoreCredit,
        Mutation::ForgetReceives,
        Mutation::HideDeath,
        Mutation::Immortal,
        Mutation::LongPeerTimeout,
        Mutation::Hoard,
        Mutation::TrustHeads,
        Mutation::IgnoreTag,
        Mutation::UnkeyedSums,
        Mutation::AcceptReplays,
        Mutation::MournStrangers,
        Mutation::TrustAddresses,
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
        Mutation::EndUnanswered,
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
