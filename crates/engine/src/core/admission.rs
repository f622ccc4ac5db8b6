//! Admission of packets: those of a job with a key need a tag by it before anything in them is
//! believed (docs/design/security.md).

use crate::api::{GroupError, LogLevel, SubmitError};
use crate::core::Core;
use crate::memory::tags::{direction_of, tag_of};
use crate::platform::system::System;
use crate::state::member_descriptor::MemberDescriptor;
use crate::state::pairing::list_rails;
use marline_auth::{is_damaged, HeadKey, JobKey, Level};
use marline_checksum::Algorithm;
use marline_codes::Code;
use marline_proto::{Config, Mutation};
use marline_rails::KeyMismatch;
use marline_wire::{Address, GroupPacket, Packet, Question, RailAddr};
use std::net::IpAddr;

/// The algorithm of sums with a key.
const KEYED: u8 = Algorithm::Aegis as u8;

/// Gives all payload sums a key, unless sums are switched off.
fn key_sums(proto: &mut Config) {
    proto.algorithms = Algorithm::BY_TRUST;
    proto.rail_algorithm.fill(None);
    if proto.algorithm != Algorithm::None as u8 {
        (proto.algorithm, proto.first_algorithm) = (KEYED, KEYED);
    }
}

/// Sends all payloads in packets, which alone are encrypted.
fn keep_in_packets(proto: &mut Config) {
    (proto.native_rails, proto.read_rails, proto.write_min) = (0, 0, u64::MAX);
}

impl<S: System> Core<S> {
    /// Gives the job's key to endpoints opened from now on.
    pub(crate) fn set_job_key(&mut self, key: JobKey) {
        let proto = &mut self.cfg.proto;
        proto.key_mark = key.mark();
        if key.level() >= Level::Payloads && !proto.errs(Mutation::UnkeyedSums) {
            key_sums(proto);
        }
        if key.level() == Level::Encrypted {
            keep_in_packets(proto);
        }
        self.admission.set_key(key);
    }

    /// The endpoint that a packet with the right tag is for.
    #[inline]
    pub(crate) fn proves_key(&mut self, packet: &Packet<'_>) -> Option<u32> {
        let tag = packet.tag()?;
        let ep = self.dir.with_id(packet.header.dst_id)?;
        let endpoint = self.dir.eps[ep as usize].as_mut()?;
        let keys = endpoint.keys.as_mut()?;
        let (slot, of) = (packet.header.dst_slot, direction_of(&packet.header));
        if let Some(key) = keys.kept_from(slot, &of) {
            return (tag_of(key, &packet.tagged_head()) == tag).then_some(ep);
        }
        if tag_of(keys.from(slot, &of), &packet.tagged_head()) != tag {
            return None;
        }
        // (A stranger with the key has no slot yet.)
        if endpoint.node.knows(slot, of.src_id) {
            keys.keep_from(slot, &of);
        }
        Some(ep)
    }

    /// The endpoint that a packet without a right tag is for, if packets need no tag; counts the
    /// packet otherwise.
    #[inline]
    pub(crate) fn admit(&mut self, now: u64, rail: usize, packet: &Packet<'_>) -> Option<u32> {
        let Some(ep) = self.dir.with_id(packet.header.dst_id) else {
            self.rails[rail].counters.wrong_token += 1;
            return None;
        };
        let keyed = self.dir.eps[ep as usize].as_ref()?.keys.is_some();
        let believed = !keyed && packet.tag().is_none();
        (believed || self.refuse_packet(now, rail, packet)).then_some(ep)
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
            self.warn(Code::Forged, &text);
        }
        false
    }

    /// Counts a packet that is not believed and reports it, at most once a second. Returns `false`.
    #[cold]
    fn refuse_packet(&mut self, now: u64, rail: usize, packet: &Packet<'_>) -> bool {
        if self.cfg.proto.errs(Mutation::IgnoreTag) {
            return true;
        }
        if self.has_damaged_tag(packet) {
            self.rails[rail].counters.corrupt_heads += 1;
            return false;
        }
        let tagged = packet.tag().is_some();
        let row = &mut self.rails[rail];
        row.counters.forged += 1;
        if self.admission.may_say(now) {
            let why = match (self.admission.has_key(), tagged) {
                (true, true) => "with the tag of another key (or FI_MARLINE_AUTH differs)",
                (true, false) => "without a tag (its sender has FI_MARLINE_AUTH=off, or no key)",
                (false, _) => "with a tag, which needs FI_MARLINE_AUTH=on and the job's key here",
            };
            let (name, id) = (&row.name, packet.header.src_id);
            let all = row.counters.forged;
            let text = format!(
                "packets that claim to come from endpoint {id:016x} arrive on {name} {why}: they \
                 are dropped (counter forged: {all})"
            );
            self.warn(Code::Forged, &text);
        }
        false
    }

    /// Returns whether bits of a wrong tag flipped on the way. The path then counts the damage.
    fn has_damaged_tag(&mut self, packet: &Packet<'_>) -> bool {
        let ep = self.dir.with_id(packet.header.dst_id);
        let endpoint = ep.and_then(|ep| self.dir.eps[ep as usize].as_mut());
        let (Some(tag), Some(endpoint)) = (packet.tag(), endpoint) else {
            return false;
        };
        let Some(keys) = &endpoint.keys else {
            return false;
        };
        let key = keys.from(packet.header.dst_slot, &direction_of(&packet.header));
        let damaged = is_damaged(tag_of(key, &packet.tagged_head()), tag);
        damaged && endpoint.node.on_bad_head(packet.head())
    }

    /// Counts a packet of a group that is not believed and reports it, at most once a second.
    #[cold]
    pub(crate) fn refuse_group_packet(
        &mut self,
        now: u64,
        rail: usize,
        key: Option<HeadKey>,
        packet: &GroupPacket<'_>,
    ) {
        let (row, head) = (&mut self.rails[rail], &packet.head);
        let right = key.map(|key| key.tag(packet.checked_head()));
        if right
            .zip(packet.tag())
            .is_some_and(|(right, tag)| is_damaged(right, tag))
        {
            row.counters.corrupt_heads += 1;
            return;
        }
        row.counters.forged += 1;
        if !self.admission.may_say(now) {
            return;
        }
        let (name, all) = (&row.name, row.counters.forged);
        let (id, group) = (head.src_id, head.group);
        let text = format!(
            "packets of multicast group {group:016x} that claim to come from endpoint {id:016x} \
             arrive on {name} without the tag of the group's key: they are dropped (counter \
             forged: {all})"
        );
        self.warn(Code::Forged, &text);
    }

    /// Refuses a group of which some member's descriptor has not the tag of the job's key. Members
    /// with other keys refuse the same group.
    pub(crate) fn check_descriptors(&self, descriptors: &[&[u8]]) -> Result<(), GroupError> {
        let key = self.admission.descriptors();
        let wrong = descriptors
            .iter()
            .position(|bytes| !MemberDescriptor::is_believed(bytes, key.as_ref()));
        let Some(member) = wrong else { return Ok(()) };
        let text = format!(
            "no multicast: the descriptor of member {member} has not the tag of this process's \
             key: all processes of a job need the same FI_MARLINE_AUTH and key"
        );
        self.warn(Code::KeyDiffers, &text);
        Err(GroupError::NoNetwork)
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
                "is refused: its key (FI_MARLINE_KEY, FI_MARLINE_KEY_FILE) or FI_MARLINE_AUTH is \
                 not the one of this process"
            }
            KeyMismatch::Tag => "ended: a frame had not the tag of the job's key",
        };
        let code = match why {
            KeyMismatch::Tag => Code::Forged,
            _ => Code::KeyDiffers,
        };
        let (name, all) = (&row.name, row.counters.forged);
        let from = from.map_or("another process".to_owned(), |ip| ip.to_string());
        let text = format!("a connection with {from} on {name} {differ} (counter forged: {all})");
        self.warn(code, &text);
    }

    /// Counts datagrams that a port dropped for their Q_Key, and reports them, at most once a
    /// second: they may be of any other job.
    #[cold]
    pub(crate) fn note_qkey_violations(&mut self, now: u64, rail: usize, more: u64) {
        let row = &mut self.rails[rail];
        row.counters.qkey_violations += more;
        if !self.admission.may_say(now) {
            return;
        }
        let (name, all) = (&row.name, row.counters.qkey_violations);
        let text = format!(
            "the port of {name} drops datagrams with another Q_Key, as processes with another key \
             of a job send them (counter qkey_violations: {all})"
        );
        self.say(LogLevel::Info, &text);
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
            _ => {
                "its key (FI_MARLINE_KEY, FI_MARLINE_KEY_FILE) or FI_MARLINE_AUTH is not the one \
                 of this process"
            }
        };
        let rails: Vec<RailAddr> = address.rails().iter().collect();
        let text = format!(
            "endpoint {:016x} at {} is refused: {differ}; all processes of a job need the same",
            address.id,
            list_rails(&rails)
        );
        self.warn(Code::KeyDiffers, &text);
        Err(SubmitError::BadAddress)
    }
}
