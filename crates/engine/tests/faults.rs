//! Programs with a handler for page faults in memory that they protect: the progress thread causes
//! such faults, too, when it stores a message.

#[path = "support/limit.rs"]
mod limit;

use limit::Limit;
use marline_engine::settings::Settings;
use marline_engine::{Completion, Engine, IoVec, LogSink, OpFlags, RecvReq, SendReq};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::Arc;

const PAGE: usize = 4_096;
static FAULTS: AtomicUsize = AtomicUsize::new(0);

/// The program's handler: counts the fault and makes the page writable.
extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    FAULTS.fetch_add(1, SeqCst);
    // SAFETY: the faulting page, as the kernel reports it; only our page faults.
    unsafe {
        let page = (*info).si_addr() as usize / PAGE * PAGE;
        let page = std::ptr::without_provenance_mut(page);
        if libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            libc::_exit(1);
        }
    }
}

fn handle_faults() {
    // SAFETY: a handler of the right type, in an otherwise zero struct.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        let rc = libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
        assert_eq!(rc, 0);
    }
}

/// A page that is not accessible yet.
fn protected_page() -> *mut u8 {
    // SAFETY: new memory of this test.
    let page = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_NONE, flags, -1, 0)
    };
    assert_ne!(page, libc::MAP_FAILED);
    page.cast()
}

#[test]
fn the_programs_handler_is_called_for_faults_of_the_thread() {
    handle_faults();
    let lookup = |name: &str| (name == "rails").then(|| "lo".to_owned());
    let settings = Settings::from_lookup(lookup).unwrap();
    let engine = Engine::open(settings, LogSink(Arc::new(|_, _| ()))).unwrap();
    let (cq, av) = (engine.cq_open(), engine.av_open());
    let eps = [0, 1].map(|_| {
        let ep = engine.ep_open().unwrap();
        engine.ep_bind_av(ep, av);
        engine.ep_bind_tx_cq(ep, cq);
        engine.ep_bind_rx_cq(ep, cq);
        engine.ep_enable(ep).unwrap();
        ep
    });
    let (name, len) = engine.ep_name(eps[1]).unwrap();
    let to = engine.av_insert(av, &name[..len]).unwrap();
    let flags = OpFlags::COMPLETION;
    let base = protected_page();
    let iov = [IoVec { base, len: PAGE }];
    let req = RecvReq {
        source: marline_engine::ADDR_UNSPEC,
        iov: &iov,
        tag: None,
        context: 1,
        flags,
    };
    engine.recv(eps[1], &req).unwrap();
    let mut bytes = [7u8; PAGE];
    let iov = [IoVec {
        base: bytes.as_mut_ptr(),
        len: PAGE,
    }];
    let req = SendReq {
        dest: to,
        iov: &iov,
        tag: None,
        data: None,
        context: 2,
        flags,
    };
    engine.send(eps[0], &req).unwrap();
    // The test does not poll: the thread receives the message.
    let limit = Limit::begin();
    while FAULTS.load(SeqCst) == 0 {
        limit.check("a page fault");
        std::thread::yield_now();
    }
    let (mut out, mut done) = ([Completion::empty(); 4], 0);
    while done < 2 {
        limit.check("both operations");
        done += engine.cq_read(cq, &mut out).expect("no error");
    }
    // SAFETY: the page is accessible now, and holds the message.
    let page = unsafe { std::slice::from_raw_parts(base, PAGE) };
    assert!(page == bytes);
    for ep in eps {
        engine.ep_close(ep);
    }
    engine.close();
}
