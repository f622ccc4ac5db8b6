//! The state of a node as text, for debugging a stall.

use crate::node::Node;
use crate::state::conn::Conn;
use crate::state::path::Path;
use crate::state::transfer::{Inbound, SendXfer};
use alloc::string::String;
use core::fmt::{Result, Write};

/// Messages described per direction, at most.
const MESSAGES: usize = 5;

impl Node {
    /// Describes the node, its peers with their paths, and the first messages in flight.
    pub fn describe(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = write_node(self, &mut out);
        out
    }
}

fn write_node(node: &Node, out: &mut String) -> Result {
    write!(
        out,
        "node {:x}: sends {}",
        node.local.id,
        node.outgoing.len()
    )?;
    write!(out, " inbound {}", node.incoming.len())?;
    write!(out, " ready {}", node.run_queue.ready.len())?;
    let grants = node.incoming.grants();
    let (budget, waiting) = grants.limits();
    write!(out, " granted {}/{budget}", grants.out())?;
    write!(out, " grant queue {waiting}")?;
    write!(out, " unexpected {}", node.stats.unexpected_bytes)?;
    writeln!(out, " next {:?}", node.next_deadline())?;
    for conn in node.directory.conns() {
        write_conn(out, conn)?;
        for path in &conn.paths {
            write_path(out, path, path.pto_at(&node.cfg, &conn.life))?;
        }
    }
    for inbound in node.incoming.iter().take(MESSAGES) {
        write_inbound(out, inbound)?;
    }
    for send in node.outgoing.iter().take(MESSAGES) {
        write_send(out, send)?;
    }
    Ok(())
}

fn write_conn(out: &mut String, c: &Conn) -> Result {
    write!(out, "  peer {} epoch {:?}", c.peer.0, c.session.epoch)?;
    write!(out, " hello acked {}", c.session.hello_acked)?;
    write!(out, " dead {} closed {}:", c.session.dead, c.session.closed)?;
    write!(out, " queue {} bulk {}", c.tx.queue.len(), c.tx.bulk.len())?;
    write!(
        out,
        " resend {} grants {}",
        c.tx.resend.len(),
        c.tx.grants.len()
    )?;
    write!(out, " control {}", c.tx.control.len())?;
    write!(out, " {}", c.credit)?;
    write!(out, " next match {}", c.rx.next_match)?;
    write!(out, " inbound {}", c.rx.inbound.len())?;
    writeln!(out, " rendezvous {}", c.tx.rendezvous.len())
}

fn write_path(out: &mut String, p: &Path, on_pto: Option<u64>) -> Result {
    write!(out, "    path {}-{} {:?}", p.local, p.to.index, p.state())?;
    write!(out, " rail down {}", p.rail_down())?;
    write!(out, " waiting {}", p.ring.waiting())?;
    write!(out, " in flight {}", p.ring.in_flight())?;
    write!(
        out,
        " cwnd {} mtu {}",
        p.congestion.cwnd(),
        p.datagram_max()
    )?;
    write!(out, " srtt {} backoff {}", p.rtt.srtt_ns(), p.pto.backoff())?;
    write!(out, " fresh {} repair {on_pto:?}", p.acks.fresh())?;
    writeln!(out, " lost {}", p.stats.lost)
}

fn write_inbound(out: &mut String, i: &Inbound) -> Result {
    write!(out, "  inbound {} {:?}", i.number, i.state)?;
    write!(out, " rv {} total {}", i.rendezvous, i.total)?;
    write!(out, " wanted {} granted {}", i.wanted, i.granted)?;
    write!(out, " counted {} got {}", i.counted, i.set.count())?;
    writeln!(out, " queued {}", i.in_grant_queue)
}

fn write_send(out: &mut String, s: &SendXfer) -> Result {
    write!(out, "  send {} {:?}", s.head.number, s.kind)?;
    write!(out, " total {} next {}", s.head.total, s.next)?;
    write!(out, " upto {} wanted {}", s.upto, s.wanted)?;
    write!(out, " acked {} granted {}", s.acked.count(), s.granted)?;
    writeln!(out, " in bulk {}", s.in_bulk)
}
