//! The job's key, and reports about packets without a valid tag.

use marline_auth::{GroupKey, HeadKey, HeadKeys, JobKey, Level};

/// Least interval in nanoseconds between two reports of packets without a valid tag.
const SAY_NS: u64 = 1_000_000_000;

/// The job's key and the last report.
#[derive(Default)]
pub(crate) struct Admission {
    key: Option<JobKey>,
    questions: Option<HeadKey>,
    encrypts: bool,
    said_ns: Option<u64>,
}

impl Admission {
    pub(crate) fn set_key(&mut self, key: JobKey) {
        self.questions = Some(key.questions());
        self.encrypts = key.level() == Level::Encrypted;
        self.key = Some(key);
    }

    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Returns whether payloads are encrypted.
    #[inline]
    pub(crate) fn encrypts(&self) -> bool {
        self.encrypts
    }

    /// The key that questions must be tagged with; `None`: all questions are answered.
    pub(crate) fn questions(&self) -> Option<&HeadKey> {
        self.questions.as_ref()
    }

    /// The keys of a new endpoint.
    pub(crate) fn keys(&self) -> Option<HeadKeys> {
        self.key.as_ref().map(HeadKeys::new)
    }

    /// The key of member descriptors.
    pub(crate) fn descriptors(&self) -> Option<HeadKey> {
        self.key.as_ref().map(JobKey::descriptors)
    }

    /// The key of the group with this identity.
    pub(crate) fn group_key(
        &self,
        id: u64,
        token: u32,
        members: &[(u64, u32)],
    ) -> Option<GroupKey> {
        let of = |key| GroupKey::new(key, id, token, members);
        self.key.as_ref().map(of)
    }

    /// Returns whether a report is due, at most once a second.
    pub(crate) fn may_say(&mut self, now: u64) -> bool {
        let due = self.said_ns.is_none_or(|said| now >= said + SAY_NS);
        if due {
            self.said_ns = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_a_second_apart() {
        let mut admission = Admission::default();
        let said = [0, 1, SAY_NS - 1, SAY_NS, SAY_NS + 1].map(|now| admission.may_say(now));
        assert_eq!(said, [true, false, false, true, false]);
    }
}
