//! Deliberate mistakes, each against one invariant, so that the simulator can prove that it would
//! notice. Without the feature `mutation` every question is answered `false` at compile time.

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Fragments that came before are taken again.
    ForgetFragments,
    /// Messages that were matched before are taken again.
    ForgetMessages,
    /// A packet with a bad payload is acknowledged.
    AckBeforeCommit,
    /// A packet gets the number of the one before.
    ReuseNumber,
    /// A send completes when its first fragment is acknowledged.
    FreeLogEarly,
    /// A message that left before it was logged is never logged.
    LeaveUnlogged,
    /// A send that ends before its bytes are delivered leaves them in its caller's memory.
    ForgetBorrowed,
    /// A payload counts whatever its sum.
    IgnoreSum,
    /// Packets that continue a fragment in its batch count whatever their sums.
    TrustRuns,
    /// Messages are matched as they arrive.
    SkipOrder,
    /// A message is told before an earlier one of its receive.
    TellEarly,
    /// Packets for other endpoints are taken.
    IgnoreToken,
    /// Lost data is not sent again.
    ForgetLost,
    /// Packets that were under way on a path that went down stay lost.
    ForgetMoved,
    /// Senders take no notice of credit.
    IgnoreCredit,
    /// A dead peer's receives stay.
    ForgetReceives,
    /// Receives from anyone are not told of a death.
    HideDeath,
    /// Silence is for ever.
    Immortal,
    /// A dead peer is waited for twice as long.
    Patient,
    /// Credit comes back twice, and what goes beyond the memory for it is taken.
    Hoard,
    /// Heads count whatever their sum.
    TrustHeads,
    /// A send ends while a rail still reads its memory.
    ReadLate,
    /// Good bytes are written over before the sum is known.
    WriteUnchecked,
    /// Bytes of a remote write are stored before their sum is known.
    ShowUnverified,
    /// Bytes of a remote write are stored again when they come again.
    ShowAgain,
    /// The end of a remote write is stored when it comes.
    ShowEndEarly,
    /// Rails write past the packets into memory that its program sees.
    OpenVisible,
    /// A receive completes one granule early.
    CompleteEarly,
    /// The granted budget does not come back.
    LeakGrants,
    /// Credit that came back is not told.
    KeepCredit,
    /// Packets that wait on a path whose rail is down stay there.
    Strand,
    /// A written fragment counts whatever its sum.
    TrustWrites,
    /// Messages end before their keys do.
    KeepKeys,
    /// A written fragment is put in place from packets while a write of it may still land.
    WriteLate,
    /// Direct writes go under sums that do not see order, and count.
    BlindSums,
    /// Direct writes land where something has landed. (The simulator's rails make this mistake.)
    LandAgain,
    /// A packet that tells of writes on an unreliable connection counts, whichever of them landed.
    /// (The simulator's rails make this mistake.)
    TrustImmediates,
    /// Connections that take nothing any more are not made anew.
    LeaveStuck,
    /// Connections rest with something under way. (The simulator's rails make this mistake.)
    RestEarly,
    /// A packet that is refused sets no timer.
    Unasked,
    /// A remote write that was refused is said to be done.
    HideRefusal,
    /// A refused remote write is forgotten before its writer knows.
    ForgetRefusal,
    /// Peers go on writing into memory that is no longer registered.
    WriteClosed,
    /// Peers go on reading memory that is no longer registered.
    ReadClosed,
    /// Memory under a key that was used before is taken to be as long as what had it then.
    KeepLength,
    /// Every repair of a packet sends all of it, whatever its length, and however long the peer is
    /// silent.
    RepairAll,
    /// Deadlines that were replaced stay until they are due.
    KeepDeadlines,
    /// Frames that were to be sent again to a dead peer stay.
    KeepDead,
    /// Grants know no budget.
    Overgrant,
    /// Unexpected messages are charged as if they had no payload.
    Uncharged,
    /// The sender's log has no bound.
    BoundlessLog,
    /// Unexpected messages take the log's room.
    SharedLog,
    /// A path falls when another answers, without a second round.
    Hasty,
    /// A packet that leaves before its books are kept forgets the acks.
    Overlook,
    /// No path is given up.
    Cling,
    /// Refusals count from whatever path they come.
    BelieveRefusals,
    /// A connection that ends is as good as one that is refused.
    BelieveResets,
    /// Refusals of one kind count as soon as any.
    BelieveHiccups,
    /// Nobody asks what stands behind a rail that refuses.
    AskNoneBehind,
    /// Large packets that vanish are chance.
    TrustSizes,
    /// Acks are said on one path, even if none is healthy.
    SayOnce,
    /// An atomic operation is done twice.
    RepeatAtomic,
    /// Calls still find memory that is no longer registered.
    CallClosed,
    /// Calls find memory whatever key they name.
    AnyKey,
    /// Lost calls, and lost answers to them, are not sent again.
    ForgetCalls,
    /// Of operations that share a call only the first is done.
    ForgetAggregated,
    /// An operation in parts is over with its first.
    EndWithPart,
    /// The last piece of a remote operation of several is forgotten.
    ForgetPiece,
    /// An operation is counted with each of its parts.
    CountParts,
    /// An operation is counted twice by its region.
    CountTwice,
    /// An operation in parts is counted by whatever region has its key when it is over.
    CountAnywhere,
    /// Whoever asks who is at a place takes the answer to another question.
    AnyAnswer,
    /// Endpoints that nobody uses answer such questions.
    AnswerUnused,
    /// A message that is read counts when its read has begun.
    PullEarly,
    /// A segment that was read counts whatever its sum.
    TrustReads,
    /// A send ends while its memory may still be read by its peer.
    KeepOffer,
    /// A send ends while its memory is open to the writes of a rail.
    KeepSource,
    /// The memory of a send is closed while writes of it are under way.
    CloseEarly,
    /// A rail whose writes and reads do not end is waited for without end.
    WaitOn,
    /// Rails are not told that their peers are silent.
    HideSilence,
    /// A silent path is left to others, however silent these are.
    LeaveToSilent,
}

impl Mutation {
    /// All of them that the simulator hunts. Not `Hasty`: to leave a path that works costs time and
    /// breaks no promise, so it cannot complain (`tests/pair.rs` notices it); nor `Cling`
    /// and `TrustSizes`, of which `failover.rs` of the simulator complains; nor `SayOnce`, which
    /// costs time, too (`tests/partial.rs`); nor `TrustImmediates`,
    /// `LeaveStuck`, `RestEarly`, `PullEarly`, `TrustReads`, `KeepOffer`, `KeepSource`,
    /// `CloseEarly` and `WaitOn`, of connections of InfiniBand (`verbs.rs` of the simulator); nor
    /// `HideSilence`, which costs a second in seeds (`neighbours.rs`), and `BelieveHiccups`, of
    /// which `outages.rs` complains.
    pub const ALL: [Mutation; 66] = [
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
        Mutation::RepairAll,
        Mutation::KeepDeadlines,
        Mutation::KeepDead,
        Mutation::Overgrant,
        Mutation::Uncharged,
        Mutation::BoundlessLog,
        Mutation::Overlook,
        Mutation::SharedLog,
        Mutation::BelieveRefusals,
        Mutation::BelieveResets,
        Mutation::AskNoneBehind,
        Mutation::RepeatAtomic,
        Mutation::CallClosed,
        Mutation::AnyKey,
        Mutation::ForgetCalls,
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
