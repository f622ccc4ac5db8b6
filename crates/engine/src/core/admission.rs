//! Admission of packets: those of a job with a key need a tag by it before anything in them is
//! believed (docs/design/security.md).

use crate::api::{LogLevel, SubmitError};
use crate::core::Core;
use crate::memory::tags::direction_of;
use crate::platform::system::System;
use crate::state::pairing::list_rails;
use marline_auth::JobKey;
use marline_proto::Mutation;
use marline_rails::KeyMismatch;
use marline_wire::{Address, Packet, Question, RailAddr};
use std::net::IpAddr;

impl<S: System> Core<S> {
    /// Gives the job's key to endpoints opened from now on.
    pub(crate) fn set_job_key(&mut self, key: JobKey) {
        self.cfg.proto.key_mark = key.mark();
        self.admission.set_key(key);
    }

    /// Returns whether a packet to endpoint `ep` may be believed, and counts it otherwise.
    #[inline]
    pub(crate) fn is_admitted(
        &mut self,
        now: u64,
        rail: usize,
        ep: u32,
        packet: &Packet<'_>,
    ) -> bool {
        let Some(endpoint) = self.dir.eps[ep as usize].as_mut() else {
            return false;
        };
        let admitted = match (&mut endpoint.keys, packet.tag()) {
            (None, None) => return true,
            (Some(keys), Some(tag)) => {
                let (slot, of) = (packet.header.dst_slot, direction_of(&packet.header));
                let right = keys.from(slot, &of).is_tag(packet.checked_head(), tag);
                if right && !keys.keeps_from(slot, &of) && endpoint.node.knows(slot, of.src_id) {
                    keys.keep_from(slot, &of);
                }
                right
            }
            _ => false,
        };
        admitted || self.refuse_packet(now, rail, packet)
    }

    /// Returns whether a question may be answered, and counts it otherwise.
    pub(crate) fn may_answer(&mut self, now: u64, rail: usize, question: &[u8]) -> bool {
        let Some(key) = self.admission.questions() else {
            return true;
        };
        let tagged = Question::tagged(question);
        if tagged.is_some_and(|(bytes, tag)| key.is_tag(bytes, tag)) {
            return true;
        }
        let row = &mut self.rails[rail];
        row.counters.forged += 1;
        if self.admission.may_say(now) {
            let text = format!(
                "questions without the tag of the job's key arrive on {}: they get no answer \
                 (counter forged: {})",
                row.name, row.counters.forged
            );
            self.say(LogLevel::Warn, &text);
        }
        false
    }

    /// Counts a packet that is not believed and reports it, at most once a second. Returns `false`.
    #[cold]
    fn refuse_packet(&mut self, now: u64, rail: usize, packet: &Packet<'_>) -> bool {
        if self.cfg.proto.errs(Mutation::IgnoreTag) {
            return true;
        }
        let tagged = packet.tag().is_some();
        let row = &mut self.rails[rail];
        row.counters.forged += 1;
        if self.admission.may_say(now) {
            let why = match (self.admission.has_key(), tagged) {
                (true, true) => "with the tag of another key",
                (true, false) => "without a tag (its sender has FI_MARLINE_AUTH=off, or no key)",
                (false, _) => "with a tag, which needs FI_MARLINE_AUTH=on and the job's key here",
            };
            let (name, id) = (&row.name, packet.header.src_id);
            let all = row.counters.forged;
            let text = format!(
                "packets that claim to come from endpoint {id:016x} arrive on {name} {why}: they \
                 are dropped (counter forged: {all})"
            );
            self.say(LogLevel::Warn, &text);
        }
        false
    }

    /// Counts a connection that was refused or ended for its key and reports it, at most once a
    /// second.
    #[cold]
    pub(crate) fn note_forged(
        &mut self,
        now: u64,
        rail: usize,
        from: Option<IpAddr>,
        why: KeyMismatch,
    ) {
        let row = &mut self.rails[rail];
        row.counters.forged += 1;
        if !self.admission.may_say(now) {
            return;
        }
        let differ = match why {
            KeyMismatch::KeyedThere => "is refused: FI_MARLINE_AUTH is on there and off here",
            KeyMismatch::UnkeyedThere => "is refused: FI_MARLINE_AUTH is off there and on here",
            KeyMismatch::OtherKey => {
                "is refused: its key (FI_MARLINE_KEY, FI_MARLINE_KEY_FILE) is not the one of this \
                 process"
            }
            KeyMismatch::Tag => "ended: a frame had not the tag of the job's key",
        };
        let (name, all) = (&row.name, row.counters.forged);
        let from = from.map_or("a process of this host".to_owned(), |ip| ip.to_string());
        let text = format!("a connection with {from} on {name} {differ} (counter forged: {all})");
        self.say(LogLevel::Warn, &text);
    }

    /// Refuses the address of an endpoint with another key, or with one where this process has
    /// none: neither side would believe a packet of the other.
    pub(crate) fn check_key_mark(&self, address: &Address) -> Result<(), SubmitError> {
        let (ours, theirs) = (self.cfg.proto.key_mark, address.key_mark);
        if ours == theirs {
            return Ok(());
        }
        let differ = match (ours, theirs) {
            (0, _) => "FI_MARLINE_AUTH is on there and off here",
            (_, 0) => "FI_MARLINE_AUTH is off there and on here",
            _ => "its key (FI_MARLINE_KEY, FI_MARLINE_KEY_FILE) is not the one of this process",
        };
        let rails: Vec<RailAddr> = address.rails().iter().collect();
        let text = format!(
            "endpoint {:016x} at {} is refused: {differ}; all processes of a job need the same",
            address.id,
            list_rails(&rails)
        );
        self.say(LogLevel::Warn, &text);
        Err(SubmitError::BadAddress)
    }
}
