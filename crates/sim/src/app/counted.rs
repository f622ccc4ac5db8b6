//! Counted remote operations (FI_RMA_EVENT): a process counts each operation on its memory once, in
//! whatever way it is transferred.

use crate::truth::memory::OpKind;
use crate::truth::remote::{Admission, Admissions, Counted, NONE};
use crate::world::endpoint::Endpoint;
use crate::world::state::World;
use crate::world::windows::User;
use std::sync::atomic::Ordering::Relaxed;

impl World {
    /// Notes that an operation on memory of `dst` is posted.
    pub(crate) fn counts(&mut self, dst: u32, reads: bool) {
        self.eps[dst as usize].counted.posted[!reads as usize] += 1;
    }

    /// Notes that an operation succeeded.
    pub(crate) fn counts_done(&mut self, dst: u32, reads: bool) {
        self.eps[dst as usize].counted.done[!reads as usize] += 1;
    }

    /// Notes that a read of `e` ended. (A read is not counted if its memory was closed before its
    /// server knew of the read.)
    pub(crate) fn counts_read(&mut self, e: u32, handle: u32, ok: bool) {
        let op = &self.eps[e as usize].ops[handle as usize];
        let OpKind::Read(reads) = &op.kind else {
            return;
        };
        let stays = reads.iter().all(|read| read.window == NONE);
        if ok && stays {
            self.counts_done(reads[0].server, true);
        }
    }

    /// The count that a window expects for an admitted user.
    pub(crate) fn admission_of(&self, user: User) -> Admission {
        let User::Put(uid) = user else {
            return Admission::Read;
        };
        match self.truth.msgs[uid as usize].put {
            Some(put) if put.data_after > 0 => Admission::Nothing,
            Some(put) if put.alone => Admission::Write(uid),
            _ => Admission::Part,
        }
    }

    /// Checks a window's counters: they count at most the admitted operations, and at least the
    /// successful writes that are not in parts.
    pub(crate) fn check_admissions(&self, admissions: &Admissions) -> Result<(), String> {
        let counted = admissions.counters.each_ref().map(|c| c.done.load(Relaxed));
        let done = |uid: &&u32| self.truth.msgs[**uid as usize].send_done == Some(true);
        let least = [0, admissions.alone.iter().filter(done).count() as u64];
        for (i, what) in ["reads", "writes"].into_iter().enumerate() {
            let (counted, least, most) = (counted[i], least[i], admissions.admitted[i]);
            if !(least..=most).contains(&counted) {
                let text = format!("counts {counted} {what} of {most} admitted, {least} done");
                return Err(text);
            }
        }
        Ok(())
    }

    /// Checks at the end that each operation was counted once. (Failed operations may be counted,
    /// and reports to an endpoint that considers its peer dead are lost.)
    pub(crate) fn check_counted(&self) -> Result<(), String> {
        let lost = |ep: &Endpoint| !ep.alive || !ep.torn_down.is_empty();
        let some_lost = self.eps.iter().any(lost);
        let alive = self.eps.iter().filter(|ep| ep.alive);
        for window in alive.flat_map(|ep| &ep.windows.open) {
            let wrong = |text| format!("window {}: {text}", window.handle);
            self.check_admissions(&window.admissions).map_err(wrong)?;
        }
        for ep in &self.eps {
            let Counted {
                counters,
                posted,
                done,
            } = &ep.counted;
            for (i, what) in ["reads", "writes"].into_iter().enumerate() {
                let counted = counters[i].done.load(Relaxed);
                let least = if some_lost { 0 } else { done[i] };
                if !(least..=posted[i]).contains(&counted) {
                    return Err(format!(
                        "endpoint {} counts {counted} {what} of {} that were posted, {} done",
                        ep.index, posted[i], done[i]
                    ));
                }
            }
        }
        Ok(())
    }
}
