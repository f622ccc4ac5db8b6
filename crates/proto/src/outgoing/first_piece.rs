//! Sending half of first pieces: which request brings one, and how it leaves. The bytes stay in the
//! caller's memory, as the message ends when it is acknowledged.

use crate::base::config::Config;
use crate::base::mutation::Mutation;
use crate::base::slab::Key;
use crate::outgoing::path_choice::PIGGYBACK_MAX;
use crate::outgoing::sends::Outgoing;
use crate::state::conn::Conn;
use crate::state::first_piece::{piece_len, EAGER_LIMIT};
use crate::state::transfer::SendXfer;
use marline_wire::RailWrites;

impl Outgoing {
    /// Bytes of a message that leave behind its request on path `at`; 0: none. Messages in windows
    /// wait for their grants, since unasked pieces would fill the peer's sockets.
    pub(super) fn first_piece(&self, cfg: &Config, conn: &Conn, at: usize, key: Key) -> u16 {
        let (session, tx) = (&conn.session, &conn.tx);
        // Bytes that leave a native rail count as arrived, even before their request.
        let taken = cfg.takes_first_pieces() && cfg.native_rails == 0 && session.first_pieces;
        let alone = tx.queue.len() == 1 && tx.bulk.is_empty() && tx.rendezvous.is_empty();
        let prompt = cfg
            .first_pieces
            .is_some_and(|least| session.promptness.is_prompt(least));
        if !taken || !alone || !prompt || !session.needs_no_hello() {
            return 0;
        }
        let (Some(send), Some(path)) = (self.table.get(key), conn.paths.get(at)) else {
            return 0;
        };
        // Where rails write to places named by keys, the receiver poisons the place first.
        let keyed = conn.paths.iter().any(|p| p.to.writes == RailWrites::Keyed);
        let plain = !keyed && !send.waits && !send.is_put() && send.advertised.is_none();
        if !plain || send.head.total <= EAGER_LIMIT {
            return 0;
        }
        let first = piece_len(path.datagram_max(), cfg.fragment_head_len());
        let room = PIGGYBACK_MAX.min(path.congestion.cwnd());
        let fits = path.healthy()
            && !path.validation.is_pending()
            && path.ring.in_flight() + first as u64 <= room;
        let credited = conn.credit.allows(first as u64) || cfg.errs(Mutation::SendUncredited);
        match fits && credited {
            true => first,
            false => 0,
        }
    }

    /// Queues the first piece of a message behind its request, for the same path `at`.
    pub(super) fn send_first(&mut self, conn: &mut Conn, at: usize, key: Key, first: u16) {
        let Some(send) = self.table.get_mut(key).filter(|_| first > 0) else {
            return;
        };
        (send.first, send.upto, send.in_bulk) = (first, first.into(), true);
        send.first_at = at as u8;
        conn.tx.bulk.push_back(key);
    }

    /// Notes how soon the first grant of a message came, on path `at`.
    pub(super) fn note_granted(&self, conn: &mut Conn, key: Key, (now, at): (u64, usize)) {
        let first = |send: &&SendXfer| !send.granted && !send.is_put();
        if let Some(send) = self.table.get(key).filter(first) {
            let waited_ns = now.saturating_sub(send.asked_ns);
            let srtt_ns = conn.paths.get(at).map_or(0, |path| path.rtt.srtt_ns());
            conn.session.promptness.note(waited_ns, srtt_ns);
        }
    }
}
