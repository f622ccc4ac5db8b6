//! A rail failure triggered by a packet that is about to leave on the rail, and that is lost with
//! it.

use crate::machine::host::index_of;
use crate::machine::out::{News, Out};
use crate::setup::choices::Trouble;
use crate::setup::moment::{Moment, Strike};
use crate::world::state::{Next, World};
use marline_checksum::crc32c;
use marline_rails::{RailEvent, RailFault};
use marline_wire::{DirectHead, Packet};

impl World {
    /// A batch of endpoint `e` is about to leave: makes the rail fail if the batch is the trigger.
    pub(crate) fn strike(&mut self, e: u32, out: &Out) {
        let Some(strike) = self.setup.strike.filter(|s| s.rail == out.rail) else {
            return;
        };
        let Some(to) = self.shows(strike.moment, e, out) else {
            return;
        };
        self.moments += 1;
        if self.moments != strike.nth {
            return;
        }
        let senders = strike.moment.is_senders() == strike.senders;
        let struck = if senders { e } else { to };
        self.fail(struck, &strike);
    }

    /// The destination endpoint of a batch that is the trigger.
    fn shows(&self, moment: Moment, e: u32, out: &Out) -> Option<u32> {
        let head = DirectHead::parse(&out.bytes).filter(|_| out.direct);
        let bytes = head
            .as_ref()
            .map_or(&out.bytes[..], |h| h.packet(&out.bytes));
        let writes = out.direct || out.write.is_some();
        if moment == Moment::Write && writes {
            // Setups with such failures have two endpoints.
            return (0..self.eps.len() as u32).find(|&other| other != e);
        }
        bytes.chunks(out.segment.max(1)).find_map(|packet| {
            let packet = Packet::parse(packet, crc32c).ok()?;
            let to = index_of(packet.header.dst_id);
            let waits = moment != Moment::Ack || self.eps.get(to as usize)?.open > 0;
            let shown = packet.frames().any(|(frame, _)| moment.shown_by(&frame));
            (shown && waits).then_some(to)
        })
    }

    fn fail(&mut self, e: u32, strike: &Strike) {
        let (host, rail) = (self.eps[e as usize].host, strike.rail);
        let troubles = match strike.notified {
            true => vec![Trouble::RailDown {
                host,
                rail,
                notified: true,
            }],
            false => [true, false]
                .map(|outgoing| Trouble::Blackhole {
                    host,
                    rail,
                    outgoing,
                })
                .to_vec(),
        };
        *self.troubles.entry("struck").or_default() += 1;
        let (from_ns, to_ns) = (self.now, self.now + strike.lasts_ns);
        for what in troubles {
            self.mix(&[self.now, 6, e as u64]);
            self.trouble(&what, true);
            let at = self.setup.faults.len() as u32;
            self.setup.add((from_ns, to_ns), what);
            self.push(to_ns, Next::Fault(at, false));
        }
        if strike.notified {
            let machine = &self.eps[e as usize].machine;
            let news = RailEvent::Fault(RailFault::Down(0));
            machine.queue_event(&mut machine.wires(), rail, News::Rail(news));
            self.wake(e, self.now);
        }
    }
}
