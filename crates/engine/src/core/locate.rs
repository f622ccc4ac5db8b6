//! Answers questions for the endpoint at a port.

use crate::core::Core;
use crate::platform::system::System;
use marline_checksum::crc32c;
use marline_proto::Mutation;
use marline_rails::{Links, RailTx};
use marline_wire::{Answer, Question, PLACE_LEN};

impl<S: System> Core<S> {
    /// Answers a question received on a rail with the address of the first enabled endpoint. Keeps
    /// no state: if the answer is lost, the question is repeated. `false`: the datagram is no
    /// question.
    #[cold]
    pub(crate) fn say_who(&mut self, now: u64, rail: usize, datagram: &[u8]) -> bool {
        let Some(question) = Question::parse(datagram, crc32c) else {
            return false;
        };
        if !self.may_answer(now, rail, datagram) {
            return true;
        }
        let mut endpoints = self.dir.eps.iter().flatten();
        let any = self.cfg.proto.errs(Mutation::AnswerUnused);
        let endpoint = endpoints.find(|endpoint| endpoint.enabled || any);
        let blob = endpoint.map(|endpoint| endpoint.node.address().encode().0);
        let row = &mut self.rails[rail];
        let kind = row.tx.local_addr().kind;
        let reached = question.from.kind == kind && !row.tx.caps().connected;
        let Some(blob) = blob.filter(|_| reached) else {
            row.counters.unknown += 1;
            return true;
        };
        let number = question.number;
        let bytes = Answer { number, blob }.encode(crc32c);
        let link = row.tx.connect(&question.from).link;
        let _ = row.tx.send(link, &bytes, PLACE_LEN, 0);
        row.tx.close(link);
        row.counters.wire_packets_sent += 1;
        row.counters.wire_bytes_sent += PLACE_LEN as u64;
        true
    }
}
