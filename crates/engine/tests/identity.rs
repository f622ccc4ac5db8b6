//! Endpoints of a process whose kernel fails to give random numbers. This file defines the system
//! call's function, which replaces libc's.

use marline_engine::settings::Settings;
use marline_engine::{Engine, LogSink, SubmitError};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Behaviour of the system call.
static MODE: AtomicUsize = AtomicUsize::new(FINE);
const FINE: usize = 0;
/// Every second call is interrupted.
const INTERRUPTED: usize = 1;
/// The kernel lacks the call.
const ABSENT: usize = 2;

static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Replaces libc's function.
///
/// # Safety
/// As for getrandom(2).
#[no_mangle]
pub unsafe extern "C" fn getrandom(
    to: *mut libc::c_void,
    len: usize,
    flags: libc::c_uint,
) -> isize {
    let odd = CALLS.fetch_add(1, SeqCst) % 2 == 0;
    let errno = match MODE.load(SeqCst) {
        INTERRUPTED if odd => libc::EINTR,
        ABSENT => libc::ENOSYS,
        // SAFETY: the caller's contract.
        _ => return unsafe { libc::syscall(libc::SYS_getrandom, to, len, flags) } as isize,
    };
    // SAFETY: the errno of this thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Prevents the opening of files during its life.
struct NoFiles(libc::rlimit);

impl NoFiles {
    fn new() -> NoFiles {
        let mut was = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: valid structs to write to and to read from.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut was), 0);
            let none = libc::rlimit { rlim_cur: 0, ..was };
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &none), 0);
        }
        NoFiles(was)
    }
}

impl Drop for NoFiles {
    fn drop(&mut self) {
        // SAFETY: a valid struct to read from.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &self.0) };
    }
}

/// All in one test, as the replaced function affects the whole process.
#[test]
fn an_endpoint_has_an_identity_of_its_own_or_does_not_open() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = lines.clone();
    let sink = LogSink(Arc::new(move |_, line: &str| {
        log.lock().unwrap().push(line.to_owned())
    }));
    let lookup = |name: &str| (name == "rails").then(|| "lo".to_owned());
    let engine = Engine::open(Settings::from_lookup(lookup).unwrap(), sink).unwrap();
    let mut names = Vec::new();
    for mode in [FINE, INTERRUPTED, ABSENT] {
        MODE.store(mode, SeqCst);
        let calls = CALLS.load(SeqCst);
        for _ in 0..2 {
            let ep = engine.ep_open().unwrap();
            names.push(engine.ep_name(ep).unwrap().0);
        }
        assert!(CALLS.load(SeqCst) > calls, "the system call is this test's");
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 6, "names of 6 endpoints");

    let no_files = NoFiles::new();
    assert_eq!(engine.ep_open(), Err(SubmitError::NoIdentity));
    drop(no_files);
    let said = lines.lock().unwrap().join("\n");
    assert!(
        said.contains("getrandom") && said.contains("/dev/urandom"),
        "{said}"
    );
    assert!(engine.ep_open().is_ok(), "it is over");
    engine.close();
}
