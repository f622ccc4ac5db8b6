//! RPCs: short remote writes and atomics travel as messages between engines, and so do their
//! answers. A node reports each RPC when it is complete and next in order; the truth then
//! determines the expected result.

use crate::truth::memory::OpKind;
use crate::truth::messages::Put;
use crate::truth::remote::{head_of, Ask, Call, Spot, NONE};
use crate::world::endpoint::Due;
use crate::world::state::World;
use marline_engine::{flag, Completion};

impl World {
    /// Records a posted message that is an RPC.
    pub(crate) fn add_call(&mut self, src: u32, dst: u32, len: u64, call: Box<Call>) -> u32 {
        let uid = self.truth.add(src, dst, None, None, len);
        self.truth.settle(uid);
        self.truth.msgs[uid as usize].call = Some(call);
        uid
    }

    /// Executes an RPC of `src` that is next in order at its target, which answers it.
    pub(crate) fn called(&mut self, e: u32, src: u32, number: u32) -> Result<(), String> {
        let found = self.truth.find(src, e, number);
        let uid = found.ok_or("a call that nobody posted")?;
        let msg = &mut self.truth.msgs[uid as usize];
        if !msg.whole() {
            return Err(format!("call {uid} before it is whole"));
        }
        let call = msg.call.as_ref().ok_or("a message is taken for a call")?;
        let joined = call.joined.clone();
        if let Ask::Answer(of) = call.ask {
            self.done_once(uid)?;
            return self.answered(of);
        }
        let answer = self.add_call(e, src, 0, Call::new(Ask::Answer(uid), Vec::new()));
        if let Some(call) = self.truth.msgs[uid as usize].call.as_mut() {
            call.answer = Some(answer);
        }
        let old = self.do_call(e, src, uid)?;
        if let Some(call) = self.truth.msgs[answer as usize].call.as_mut() {
            call.bytes.extend_from_slice(&old);
        }
        for uid in joined {
            let msg = &mut self.truth.msgs[uid as usize];
            (msg.head_seen, msg.arrived) = (true, true);
            msg.land(0, msg.size());
            self.do_call(e, src, uid)?;
        }
        Ok(())
    }

    fn done_once(&mut self, uid: u32) -> Result<Ask, String> {
        let msg = &mut self.truth.msgs[uid as usize];
        msg.delivered = true;
        let call = msg.call.as_mut().ok_or("a message is taken for a call")?;
        match std::mem::replace(&mut call.done, true) {
            true => Err(format!("call {uid} is done twice")),
            false => Ok(call.ask),
        }
    }

    /// Executes an RPC, or an operation that shares one, and returns its result.
    fn do_call(&mut self, e: u32, src: u32, uid: u32) -> Result<Vec<u8>, String> {
        match self.done_once(uid)? {
            Ask::Atomic(handle, part) => {
                let old = self.operate(e, src, (handle, part))?;
                if self.is_refused(src, (handle, part)) {
                    self.truth.refuse(uid);
                }
                Ok(old)
            }
            Ask::Read(handle) => self.read_nothing(e, src, handle),
            Ask::Put | Ask::Over | Ask::Answer(_) => Ok(Vec::new()),
        }
    }

    /// If the engine has put the last posted RPC into the RPC before it, notes that. The log has
    /// this in order, and says first whether the next RPC is a part of the same operation.
    pub(crate) fn join_calls(&mut self, e: u32, uid: u32) {
        let joins = self.eps[e as usize].machine.log().joins.pop_front();
        if joins != Some(true) {
            return;
        }
        *self.troubles.entry("operations in one call").or_default() += 1;
        if self.truth.join(uid).is_none() {
            self.broken(e, format!("{uid} goes in what is no call"));
        }
    }

    fn answered(&mut self, of: u32) -> Result<(), String> {
        let asked = self.truth.msgs[of as usize].call.as_mut();
        let asked = asked.filter(|call| call.done).ok_or("answered, not done")?;
        if std::mem::replace(&mut asked.answered, true) {
            return Err(format!("call {of} is answered twice"));
        }
        for uid in asked.joined.clone() {
            self.answered(uid)?;
        }
        Ok(())
    }

    /// A read of zero bytes goes as an RPC, or is done locally.
    pub(crate) fn call_read(&mut self, e: u32, dst: u32, handle: u32) -> Result<(), String> {
        if dst == e {
            return self.read_nothing(e, e, handle).map(|_| ());
        }
        let OpKind::Read(reads) = &self.eps[e as usize].ops[handle as usize].kind else {
            return Err("not a read".into());
        };
        let bytes = head_of(reads[0].key, reads[0].addr, None);
        self.add_call(e, dst, 0, Call::new(Ask::Read(handle), bytes));
        Ok(())
    }

    /// `e` serves a read of zero bytes.
    fn read_nothing(&mut self, e: u32, src: u32, handle: u32) -> Result<Vec<u8>, String> {
        let OpKind::Read(reads) = &self.eps[src as usize].ops[handle as usize].kind else {
            return Err("not a read".into());
        };
        let place = (reads[0].key, reads[0].addr, 0);
        self.read_next(e, (src, (handle, 0)), place)?;
        Ok(Vec::new())
    }

    /// The bytes of a remote write arrived: expects its data in an RPC.
    pub(crate) fn data_follows(&mut self, e: u32, handle: u32) -> Result<(), String> {
        let op = &mut self.eps[e as usize].ops[handle as usize];
        let OpKind::Put {
            uid, pieces, data, ..
        } = &mut op.kind
        else {
            return Err("data of what is no remote write".into());
        };
        let data = data.take().ok_or("data that nobody gave")?;
        let all = &self.truth.msgs[*uid as usize..][..*pieces as usize];
        let data_after = all.iter().map(|msg| msg.len as usize).sum();
        let msg = &all[0];
        let (dst, put) = (msg.dst, msg.put.ok_or("not a put")?);
        let bytes = head_of(put.key, put.addr, Some(data));
        let spot = Spot {
            window: NONE,
            key: put.key,
            addr: put.addr,
        };
        let call = (dst != e).then(|| Call::new(Ask::Put, bytes));
        let trailer = self.truth.add(e, dst, None, None, 0);
        self.truth.settle(trailer);
        let msg = &mut self.truth.msgs[trailer as usize];
        let put = Put::new(spot, Some(data));
        (msg.call, msg.put) = (call, Some(Put { data_after, ..put }));
        self.put_due(e, dst, trailer, dst == e);
        Ok(())
    }

    /// All parts of an operation on the memory of `dst` succeeded: an RPC tells `dst` the region.
    pub(crate) fn parts_done(&mut self, e: u32, (dst, key): (u32, u64)) -> Result<(), String> {
        if e != dst {
            self.add_call(e, dst, 0, Call::new(Ask::Over, head_of(key, 0, None)));
            *self.troubles.entry("told of parts").or_default() += 1;
        }
        Ok(())
    }

    /// An entry reports data of a remote write.
    pub(crate) fn data_completed(&mut self, e: u32, entry: &Completion) -> Result<(), String> {
        let ep = &mut self.eps[e as usize];
        let next = ep.windows.data_due.pop_front();
        let (src, data, len) = next.ok_or_else(|| format!("data of nobody: {entry:?}"))?;
        let flags = flag::RMA | flag::REMOTE_WRITE | flag::REMOTE_CQ_DATA;
        let fine = (entry.flags, entry.data, entry.len) == (flags, data, len);
        if !fine || !ep.source_is(src, entry.source) || entry.error.is_some() {
            return Err(format!(
                "it must be {data:#x} of {len} B by {src}: {entry:?}"
            ));
        }
        let queue = ep.queue(true);
        let due = Due::of(entry);
        ep.due[queue].push_back(Due { last: false, ..due });
        *self.troubles.entry("data of a put").or_default() += 1;
        Ok(())
    }
}
