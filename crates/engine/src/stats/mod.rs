//! Counters: one table per group, plain numbers with a single writer, and the page that publishes
//! them.
//!
//! The engine counts in ordinary memory, each event in one place: per path in [`PathCounters`], per
//! peer in [`PeerCounters`], per rail without a known path in [`RailCounters`], all else in
//! [`ProcessCounters`]. It copies them to a [`page::Page`] in shared memory from time to time.
//! Readers compute totals (of a rail with its paths, of a process with its peers): see [`reader`]
//! and [`summary`].

mod codes;
pub mod dead;
pub mod disabled;
pub mod events;
pub mod given;
pub mod history;
mod layout;
mod map;
pub mod outages;
pub mod page;
pub mod process;
pub mod reader;
pub mod report;
mod ring;
pub mod rows;
mod sequence;
pub(crate) mod stale;
pub mod summary;
#[cfg(test)]
mod test_page;
pub mod text;
pub mod waits;
mod words;

/// The combination of two values of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// The sum of both.
    Sum,
    /// The maximum of both (high-water marks and current values).
    Max,
}

/// A row of a table of counters.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name of the field.
    pub name: &'static str,
    /// The unit of the count.
    pub unit: &'static str,
    /// Combination of values.
    pub combine: Combine,
    /// The meaning of the counter.
    pub doc: &'static str,
}

/// A group of counters.
pub trait Counters: Copy + Default {
    /// The table of the counters.
    const ROWS: &'static [Row];
    /// The counters' values, in the order of the table.
    type Words: AsRef<[u64]>;
    /// Returns the counters' values, in the order of the table.
    fn words(&self) -> Self::Words;
    /// Returns each row of the table with its value.
    fn values(&self) -> impl Iterator<Item = (&'static Row, u64)> {
        let words = self.words();
        let rows = Self::ROWS.iter().enumerate();
        rows.map(move |(n, row)| (row, words.as_ref()[n]))
    }
    /// The inverse of [`Counters::words`]; missing words are 0.
    fn from_words(words: &[u64]) -> Self;
    /// Combines another group's values with this one.
    fn merge(&mut self, other: &Self);
}

macro_rules! counters {
    ($(#[doc = $about:literal])+ $group:ident {
        $($name:ident: $combine:ident, $unit:literal, $doc:literal;)*
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $group {
            $(#[doc = $doc] pub $name: u64,)*
        }

        impl Counters for $group {
            const ROWS: &'static [Row] = &[$(Row {
                name: stringify!($name),
                unit: $unit,
                combine: Combine::$combine,
                doc: $doc,
            },)*];
            type Words = [u64; [$(stringify!($name)),*].len()];
            fn words(&self) -> Self::Words {
                [$(self.$name),*]
            }
            fn from_words(words: &[u64]) -> Self {
                let mut words = words.iter().copied();
                Self { $($name: words.next().unwrap_or(0)),* }
            }
            fn merge(&mut self, other: &Self) {
                $(self.$name = match Combine::$combine {
                    Combine::Sum => self.$name.wrapping_add(other.$name),
                    Combine::Max => self.$name.max(other.$name),
                };)*
            }
        }
    };
}

counters! {
    /// Counters of the whole process.
    ProcessCounters {
        sizes_to_64: Sum, "messages", "Messages sent of up to 64 bytes.";
        sizes_to_1k: Sum, "messages", "Up to 1 KiB.";
        sizes_to_8k: Sum, "messages", "Up to 8 KiB.";
        sizes_to_64k: Sum, "messages", "Up to 64 KiB.";
        sizes_to_1m: Sum, "messages", "Up to 1 MiB.";
        sizes_to_16m: Sum, "messages", "Up to 16 MiB.";
        sizes_above: Sum, "messages", "More than 16 MiB.";
        eager_sent: Sum, "messages", "Messages sent at once, copied to the sender's log.";
        rendezvous_sent: Sum, "messages", "Messages that waited for the receiver's grant.";
        written: Sum, "fragments", "Fragments written into a peer's memory, past packets.";
        written_wrong: Sum, "fragments", "Written fragments with a wrong sum, or changed in reads.";
        written_lost: Sum, "fragments", "Fragments that a peer wrote and that did not land.";
        pulled: Sum, "messages", "Messages read from their sender's memory.";
        pulls_failed: Sum, "messages", "Messages not read whole: the rest was granted.";
        summed_by_workers: Sum, "bytes", "Bytes of writes and read segments that workers summed.";
        reads: Sum, "reads", "Remote reads of this process.";
        read_bytes: Sum, "bytes", "Bytes fetched by remote reads.";
        rpcs: Sum, "operations", "Short remote writes and atomic operations of this process.";
        aggregated: Sum, "operations", "Operations that shared the RPC of an earlier one.";
        remote_refused: Sum, "operations", "Operations of peers that were refused.";
        unexpected: Sum, "messages", "Messages that arrived before their receive was posted.";
        unknown_rails: Sum, "rails", "Rails of peers, of a kind that this version does not know.";
        peers_contacted: Max, "peers", "Peers that anything was sent to or received from.";
        peers_dead: Sum, "peers", "Peers given up as dead.";
        log_bytes_max: Max, "bytes", "Most memory held at once for retransmission.";
        reliability_bytes: Max, "bytes", "Memory of log, windows and tables now, room included.";
        reliability_bytes_max: Max, "bytes", "Most of that seen, ten times a second.";
        unacked_packets_max: Max, "packets", "Most packets waiting for their ack at once.";
        unexpected_bytes_max: Max, "bytes", "Most memory held at once by unexpected messages.";
        again: Sum, "calls", "Calls refused for the moment (EAGAIN).";
        polls: Sum, "calls", "Progress calls of the application.";
        thread_wakeups: Sum, "wake-ups", "Times the progress thread woke up.";
        thread_takeovers: Sum, "times", "Times the thread found nobody polling and worked.";
        thread_calls: Sum, "calls", "Times the application woke the progress thread.";
        poll_gap_max_ns: Max, "ns", "Longest time between two progress calls.";
        message_wait_max_ns: Max, "ns",
            "Longest wait of a message (`marline_message_wait_seconds`).";
        ack_wait_max_ns: Max, "ns",
            "Longest time from a packet's departure to its ack, while polling.";
        ack_delay_max_ns: Max, "ns", "Longest time from a packet's arrival to its ack, by anybody.";
        thread_ack_delay_max_ns: Max, "ns", "The same, of acks that the progress thread sent.";
    }
}

counters! {
    /// Counters of a rail that belong to no path.
    RailCounters {
        send_calls: Sum, "calls", "System calls that sent.";
        wire_packets_sent: Sum, "packets", "Datagrams sent, of all kinds.";
        wire_packets_received: Sum, "packets", "Datagrams received, good or not.";
        wire_bytes_sent: Sum, "bytes", "Bytes sent, without UDP and IP headers.";
        wire_bytes_received: Sum, "bytes", "Bytes received, without these headers.";
        busy: Sum, "calls", "Sends refused because a queue of the kernel was full.";
        receiver_drops: Sum, "packets", "Dropped by our kernel: the receive buffer was full.";
        host_reads: Sum, "datagrams", "Of groups, read for all processes of the host.";
        host_takes: Sum, "datagrams", "Of groups, read by another process of the host.";
        corrupt_heads: Sum, "packets", "Packets whose head failed its checksum.";
        truncated: Sum, "packets", "Packets shorter than they say.";
        torn: Sum, "packets", "Parts of direct writes that came apart on the way.";
        wrong_version: Sum, "packets", "Packets and connections of another version, undamaged.";
        wrong_algorithm: Sum, "packets", "Packets in a checksum algorithm that is unknown here.";
        wrong_token: Sum, "packets", "Packets with a token that is not ours.";
        wrong_epoch: Sum, "packets", "Packets of an earlier life of a peer or of ours.";
        unadmitted: Sum, "packets", "First packets of strangers beyond the limit.";
        unknown: Sum, "packets", "Packets for no endpoint, or of no sense.";
        forged: Sum, "packets", "Packets and connections without the tag of the job's key.";
        qkey_violations: Max, "datagrams", "Of another Q_Key, dropped by the port, of any process.";
        replayed: Sum, "packets", "Of groups with a key: received again, too old, or not for us.";
        errors: Sum, "errors", "Errors of the interface or the kernel.";
        icmp_errors: Sum, "errors", "Refusals by a peer's host.";
        async_events: Sum, "events", "Events that an adapter told of by itself, of all kinds.";
        failed_completions: Sum, "completions", "Requests that an adapter ended with an error.";
        registered: Sum, "times", "The program's memory was registered with the adapter.";
        unregistered: Sum, "times", "The program's memory could not be registered: it is copied.";
        evicted: Sum, "connections", "Connections closed for others, as there were too many.";
        reconnected: Sum, "connections", "Connections made for links that had been up without.";
        staged: Sum, "messages", "Messages granted memory of the rail's own.";
        downs: Sum, "times", "Times the interface itself was down.";
    }
}

counters! {
    /// Counters of a peer over all paths.
    PeerCounters {
        messages_sent: Sum, "messages", "Messages sent.";
        messages_received: Sum, "messages", "Messages received.";
        bytes_sent: Sum, "bytes", "Payload bytes of messages, writes, answers to reads, each once.";
        bytes_received: Sum, "bytes", "Payload bytes of messages received, each counted once.";
        flow_acks_sent: Sum, "frames", "Grants and credits sent: flow control, not reliability.";
        flow_acks_received: Sum, "frames", "Grants and credits received.";
        acks_sent: Sum, "packets", "Packets sent only because of the acks in them.";
        acks_piggybacked: Sum, "acks", "Acks that rode on packets that left anyway.";
        acks_received: Sum, "acks", "Acks received, both ways.";
        duplicate_fragments: Sum, "fragments", "Fragments that came though they were here already.";
        unacked_packets_max: Max, "packets", "Most packets waiting for their ack at once.";
    }
}

counters! {
    /// Counters of a path: one of our rails and one of a peer's.
    PathCounters {
        packets_sent: Sum, "packets", "Packets sent.";
        packets_received: Sum, "packets", "Packets received and good.";
        bytes_sent: Sum, "bytes", "Bytes of packets sent.";
        bytes_received: Sum, "bytes", "Bytes of packets received.";
        lost: Sum, "packets", "Packets found to be lost.";
        spurious: Sum, "packets", "Packets declared lost whose ack came after all.";
        resent_loss: Sum, "packets", "Retransmissions because acks showed a loss.";
        resent_pto: Sum, "packets", "Retransmissions because no ack came in time.";
        resent_failover: Sum, "packets", "Retransmissions because this path was given up.";
        resent_spurious: Sum, "packets", "Packets resent for want of an ack that came after all.";
        corrupt_payloads: Sum, "packets", "Packets whose payload failed its checksum.";
        duplicates: Sum, "packets", "Packets received again.";
        probes_sent: Sum, "packets", "Probes sent.";
        reroutes: Sum, "times", "Times another port or connection was tried: no path carried.";
        downs: Sum, "times", "Times the path was given up (failovers).";
        corrupt_downs: Sum, "times", "Times it was given up for damage.";
        ups: Sum, "times", "Times it was taken back.";
        shrinks: Sum, "times", "Times its packets shrank, as large ones vanished.";
        rtt_ns: Max, "ns", "Smoothed round-trip time now.";
        window_bytes: Max, "bytes", "Congestion window now.";
        bytes_per_s: Max, "bytes/s", "Delivery rate measured lately.";
    }
}

impl PathCounters {
    /// Retransmissions of all kinds.
    pub fn resent(&self) -> u64 {
        let known = self.resent_loss.saturating_add(self.resent_pto);
        known.saturating_add(self.resent_failover)
    }
}

/// Raises a high-water mark.
#[inline]
pub fn raise(mark: &mut u64, value: u64) {
    *mark = (*mark).max(value);
}

#[cfg(test)]
mod test {
    use super::*;

    fn check_group<C: Counters + PartialEq + std::fmt::Debug>() {
        let ramp: Vec<u64> = (1..=C::ROWS.len() as u64).collect();
        let group = C::from_words(&ramp);
        assert_eq!(group.words().as_ref(), ramp);
        let mut twice = group;
        twice.merge(&group);
        for (n, row) in C::ROWS.iter().enumerate() {
            let factor = if row.combine == Combine::Sum { 2 } else { 1 };
            assert_eq!(twice.words().as_ref()[n], ramp[n] * factor, "{}", row.name);
            assert!(
                row.doc.ends_with('.') && !row.doc.contains('|'),
                "{}",
                row.name
            );
            let same = C::ROWS.iter().filter(|r| r.name == row.name);
            assert_eq!(same.count(), 1, "{}", row.name);
        }
        assert_eq!(C::from_words(&[]), C::default());
    }

    #[test]
    fn groups_are_whole() {
        check_group::<ProcessCounters>();
        check_group::<RailCounters>();
        check_group::<PeerCounters>();
        check_group::<PathCounters>();
    }

    fn document_group<C: Counters>(title: &str) -> String {
        let mut out = format!("\n## {title}\n\n");
        for row in C::ROWS {
            let begins = row.doc.to_ascii_lowercase();
            let unit = Some(row.unit).filter(|unit| !begins.starts_with(unit));
            let greatest = matches!(row.combine, Combine::Max).then_some("greatest");
            let both: Vec<&str> = unit.into_iter().chain(greatest).collect();
            let both = match &*both.join(", ") {
                "" => String::new(),
                text => format!(" ({text})"),
            };
            out += &format!("- `{}`{both}: {}\n", row.name, row.doc);
        }
        out
    }

    /// The text of `docs/statistics.md`: the stored introduction and the lists.
    fn document() -> String {
        let stored = include_str!("../../../../docs/statistics.md");
        let (mut out, first) = (String::new(), "\n## Per process\n");
        out += stored
            .split_once(first)
            .map_or(stored, |(written, _)| written);
        out += &document_group::<ProcessCounters>("Per process");
        out += &document_group::<RailCounters>("Per rail");
        out += &document_group::<PeerCounters>("Per peer");
        out += &document_group::<PathCounters>("Per path");
        out
    }

    #[test]
    fn document_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/statistics.md");
        if std::env::var_os("MARLINE_BLESS").is_some() {
            std::fs::write(path, document()).unwrap();
        }
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        let same = stored == document();
        assert!(
            same,
            "run MARLINE_BLESS=1 cargo test -p marline-engine document_is_current"
        );
    }
}
