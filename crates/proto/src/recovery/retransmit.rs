//! Frames of lost packets, retransmitted in order, each once.

use crate::base::blocks::Covered;
use crate::base::slab::Key;
use crate::outgoing::sends::Outgoing;
use crate::state::conn::Conn;
use crate::state::resends::{Resend, ANYWHERE};
use crate::state::sent_packets::FrameRef;
use crate::tx::packet_builder::Builder;
use marline_wire::{blocks, Frame, Header, Rts, BLOCK_BYTES};

impl Outgoing {
    /// Adds frames from the retransmission queue while they fit. `hedges_only`: only frames that a
    /// timer retransmits on two paths.
    pub(crate) fn add_resends(
        &mut self,
        conn: &mut Conn,
        b: &mut Builder<'_, '_>,
        hedges_only: bool,
    ) {
        while let Some(&entry) = conn.tx.resend.front() {
            if hedges_only && entry.avoid == ANYWHERE {
                break;
            }
            let fits = match entry.frame {
                FrameRef::Data { xfer, offset, len } => {
                    self.resend_data(conn, (xfer, offset, len), &entry, b)
                }
                FrameRef::Written {
                    xfer, offset, len, ..
                } => {
                    self.requeue_written(xfer, offset, len);
                    self.resend_data(conn, (xfer, offset, len), &entry, b)
                }
                FrameRef::Rts(key) => match self.get(key) {
                    Some(send) if !send.granted => {
                        let rts = Frame::Rts(Rts { head: send.head });
                        let fits = b.control(&rts, Some(entry.frame));
                        conn.count_resent(entry.path as usize, entry.why, fits);
                        fits
                    }
                    _ => true,
                },
                _ => true,
            };
            if !fits {
                break;
            }
            conn.tx.resend.pop_front();
        }
    }

    /// Retransmits as much of a span as fits; `false`: the rest is at the front of the queue.
    fn resend_data(
        &mut self,
        conn: &mut Conn,
        (key, offset, len): (Key, u64, u32),
        entry: &Resend,
        b: &mut Builder<'_, '_>,
    ) -> bool {
        let Some(send) = self.get(key) else {
            return true;
        };
        let n = blocks(len as u64);
        if send.acked.covered(offset / BLOCK_BYTES, n) == Covered::All {
            return true;
        }
        let urgent = send.urgent || entry.avoid != ANYWHERE;
        let Some(pushed) = self.push_data(key, offset, len, b) else {
            return false;
        };
        conn.count_resent(entry.path as usize, entry.why, true);
        if urgent {
            b.flags |= Header::FLAG_ACK_NOW;
        }
        if pushed < len {
            let rest = FrameRef::Data {
                xfer: key,
                offset: offset + pushed as u64,
                len: len - pushed,
            };
            conn.tx.resend.cut_front(rest);
            return false;
        }
        true
    }
}
