//! Forked children that open engines of their own, whatever their parent's threads are doing at the
//! fork. (`forked.rs` tests children that use their parent's engine.)

#[path = "support/limit.rs"]
mod limit;
#[path = "support/side.rs"]
mod side;

use limit::Limit;
use marline_engine::settings::Settings;
use marline_engine::stats::reader::{list_pages, read_page};
use marline_engine::{
    mark_forked, Completion, Engine, IoVec, LogSink, OpFlags, RecvReq, SendReq, ADDR_UNSPEC,
};
use side::Side;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Arc;

/// Seconds after which a signal ends a child that hangs.
const HANGS_S: u32 = 60;
/// Number of children forked while threads of their parent are busy.
const CHILDREN: usize = 60;
/// Length of a rendezvous message: its receiver has to send a grant before it arrives.
const LONG: usize = 300_000;

fn side(settings: &[(&str, &str)]) -> Side {
    side::side(settings, LogSink(Arc::new(|_, _| ())))
}

impl Side {
    fn name(&self) -> Vec<u8> {
        let (name, len) = self.engine.ep_name(self.ep).unwrap();
        name[..len].to_vec()
    }

    fn knows(&self, name: &[u8]) {
        assert_eq!(self.engine.av_insert(self.av, name), Ok(0));
    }

    fn send(&self, bytes: &[u8]) {
        let iov = [IoVec {
            base: bytes.as_ptr().cast_mut(),
            len: bytes.len(),
        }];
        let req = SendReq {
            dest: 0,
            iov: &iov,
            tag: None,
            data: None,
            context: 1,
            flags: OpFlags::COMPLETION,
        };
        self.engine.send(self.ep, &req).unwrap();
    }

    fn receive(&self, bytes: &mut [u8]) {
        let iov = [IoVec {
            base: bytes.as_mut_ptr(),
            len: bytes.len(),
        }];
        let req = RecvReq {
            source: ADDR_UNSPEC,
            iov: &iov,
            tag: None,
            context: 2,
            flags: OpFlags::COMPLETION,
        };
        self.engine.recv(self.ep, &req).unwrap();
    }

    /// Polls until this many operations have ended.
    fn finish(&self, operations: usize) {
        let mut done = 0;
        let limit = Limit::begin();
        while done < operations {
            limit.check("every operation");
            done += self.poll();
        }
    }

    fn poll(&self) -> usize {
        let mut out = [Completion::empty(); 4];
        self.engine.cq_read(self.cq, &mut out).expect("no error")
    }

    fn close(&self) {
        self.engine.ep_close(self.ep);
        self.engine.close();
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// Forks a child that does `work` and exits without exit handlers.
fn fork(work: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child allocates, which the C library permits, and uses engines of its own, which
    // is the subject of the test.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::alarm(HANGS_S);
            mark_forked(); // the API layer does this in `pthread_atfork`
            let done = catch_unwind(AssertUnwindSafe(work));
            libc::_exit(done.is_err() as i32);
        }
        child
    }
}

/// Exit status of a child, if it has ended; 0: success.
fn ended(child: libc::pid_t, flags: libc::c_int) -> Option<i32> {
    let mut status = -1;
    // SAFETY: `status` is an int to write to; `child` is ours.
    let waited = unsafe { libc::waitpid(child, &mut status, flags) };
    assert!(waited >= 0);
    (waited == child).then_some(status)
}

/// Number of this process's descriptors of a kind.
fn descriptors(kind: &str) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = all.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    links.filter(|to| to == Path::new(kind)).count()
}

/// A child that waits for `parent`'s message without polling: only its own thread can send the
/// grant.
fn computes(parent: &Side, settings: &[(&str, &str)], its_name: &[u8]) {
    assert!(parent.engine.is_unusable());
    let kinds = ["anon_inode:[eventfd]", "anon_inode:[timerfd]"];
    let before = kinds.map(descriptors);
    let child = side(settings);
    for (kind, before) in kinds.into_iter().zip(before) {
        assert!(descriptors(kind) > before, "{kind}: its parent's");
    }
    child.knows(its_name);
    let mut bytes = vec![0xee; LONG];
    child.receive(&mut bytes);
    child.send(&child.name());
    let right = content(LONG);
    let last = &raw const bytes[LONG - 1];
    let limit = Limit::begin();
    // SAFETY: a byte of this function's buffer, which the child's thread writes.
    while unsafe { last.read_volatile() } != right[LONG - 1] {
        limit.check("the last byte");
        std::thread::yield_now();
    }
    child.finish(2);
    assert!(bytes == right);
    child.close();
    assert!(parent.engine.is_unusable());
}

#[test]
fn a_child_has_a_thread_of_its_own_and_talks_to_its_parent() {
    let dir = std::env::temp_dir().join(format!("marline-children-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let settings = [("rails", "lo"), ("stats_dir", dir.to_str().unwrap())];
    let parent = side(&settings);
    let name = parent.name();
    let child = fork(|| computes(&parent, &settings, &name));
    let mut its_name = vec![0; name.len()];
    parent.receive(&mut its_name);
    let mut end = None;
    let mut done = 0;
    let limit = Limit::begin();
    while done < 1 && end.is_none() {
        limit.check("the child's message");
        done += parent.poll();
        end = ended(child, libc::WNOHANG);
    }
    assert_eq!(end, None, "the child has ended before its message came");
    parent.knows(&its_name);
    let bytes = content(LONG);
    parent.send(&bytes);
    while end.is_none() {
        limit.check("the child's end");
        done += parent.poll();
        end = ended(child, libc::WNOHANG);
    }
    assert_eq!((end, done), (Some(0), 2));
    parent.close();
    // A complete page each.
    let pages = list_pages(&dir);
    assert_eq!(pages.len(), 2, "{pages:?}");
    assert!(pages.iter().all(|page| read_page(page).is_ok()));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Exchanges messages between two engines of a child.
fn exchanges() {
    let settings = [("rails", "lo")];
    let (a, b) = (side(&settings), side(&settings));
    a.knows(&b.name());
    b.knows(&a.name());
    for len in [8, LONG] {
        let (sent, mut got) = (content(len), vec![0; len]);
        b.receive(&mut got);
        a.send(&sent);
        let mut done = 0;
        let limit = Limit::begin();
        while done < 2 {
            limit.check("the message");
            done += a.poll() + b.poll();
        }
        assert!(got == sent);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| a.close());
        b.close();
    });
}

/// The progress thread and other threads are busy when children are forked: engines open and close,
/// lists and clocks are created and locked.
#[test]
fn children_made_while_threads_are_busy_open_engines_and_close_them() {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut engines = 0;
            while !over.load(SeqCst) {
                let lookup = |name: &str| (name == "rails").then(|| "lo".to_owned());
                let settings = Settings::from_lookup(lookup).unwrap();
                let engine = Engine::open(settings, LogSink(Arc::new(|_, _| ()))).unwrap();
                engine.close();
                engines += 1;
            }
            engines
        });
        let ends: Vec<_> = (0..CHILDREN).map(|_| ended(fork(exchanges), 0)).collect();
        over.store(true, SeqCst);
        assert!(busy.join().unwrap() > 0);
        assert_eq!(ends, [Some(0); CHILDREN]);
    });
    // The parent continues to work.
    exchanges();
}
