//! Devices and their ports.

use super::layout::{AsyncEvent, Context, DeviceAttr, PortAttr, Qp};
use super::library::{library, Library};
use crate::sys::{errno, Errno};
use std::ffi::{c_int, CStr};
use std::sync::Arc;

/// The state of a port that carries packets.
const ACTIVE: i32 = 4;
/// States of a port whose link is up and which waits for a subnet manager.
const INIT: i32 = 2;
const ARMED: i32 = 3;

/// Maximum of outstanding RDMA reads per connection, in each direction. (The peer's limit is not
/// queried: adapters support 16 or more.)
const READS_MAX: i32 = 8;

/// An open device.
pub(crate) struct VerbsDevice {
    pub(super) library: &'static Library,
    pub(super) context: *mut Context,
    /// Maximum depth of a send or receive queue.
    pub(crate) queue_max: u32,
    /// Outstanding RDMA reads of a connection, as responder and as initiator.
    pub(crate) reads: (u8, u8),
    /// Maximum depth of a shared receive queue; 0: not supported.
    pub(crate) receives_max: u32,
    /// Maximum depth of a completion queue.
    pub(crate) completions_max: u32,
    /// Number of ports; ports are counted from 1.
    pub(crate) ports: u8,
    /// Firmware version, for people.
    pub(crate) firmware: String,
}

// SAFETY: the library's functions may be called by any thread at any time; the last holder closes
// the context once.
unsafe impl Send for VerbsDevice {}
// SAFETY: see above.
unsafe impl Sync for VerbsDevice {}

/// An asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VerbsEvent {
    /// A port is active again.
    PortUp(u8),
    /// A port is no longer active.
    PortDown(u8),
    /// A port's identifiers or GIDs may have changed.
    PortChanged(u8),
    /// The device, or a queue shared by all our queue pairs, failed fatally.
    Fatal,
    /// A queue pair, given by its number, is in the error state; an error completion need not
    /// follow.
    PairBroken(u32),
    /// An event without consequences for the rail.
    Other,
}

/// Names of events by number, without the prefix `IBV_EVENT_`.
const EVENTS: [&str; 20] = [
    "CQ_ERR",
    "QP_FATAL",
    "QP_REQ_ERR",
    "QP_ACCESS_ERR",
    "COMM_EST",
    "SQ_DRAINED",
    "PATH_MIG",
    "PATH_MIG_ERR",
    "DEVICE_FATAL",
    "PORT_ACTIVE",
    "PORT_ERR",
    "LID_CHANGE",
    "PKEY_CHANGE",
    "SM_CHANGE",
    "SRQ_ERR",
    "SRQ_LIMIT_REACHED",
    "QP_LAST_WQE_REACHED",
    "CLIENT_REREGISTER",
    "GID_CHANGE",
    "WQ_FATAL",
];

/// The name of an event.
fn event_name(number: c_int) -> &'static str {
    let known = usize::try_from(number).ok().and_then(|at| EVENTS.get(at));
    known.copied().unwrap_or("an event that is not known")
}

/// Names of all devices in the library's order; the error says why none can be used.
pub(crate) fn device_names() -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    with_devices(|_, name, _| {
        names.push(name.to_owned());
        None::<()>
    })?;
    Ok(names)
}

/// Calls `f` with each device until it returns `Some`.
fn with_devices<T>(
    mut f: impl FnMut(&'static Library, &str, *mut super::layout::Device) -> Option<T>,
) -> Result<Option<T>, String> {
    let library = library().map_err(str::to_owned)?;
    let mut count: c_int = 0;
    // SAFETY: the count outlives the call.
    let list = unsafe { (library.get_device_list)(&mut count) };
    if list.is_null() {
        let errno = errno();
        return match errno {
            libc::ENOSYS => Err("the kernel has no verbs (module ib_uverbs)".to_owned()),
            _ => Err(format!(
                "no list of devices: {}",
                crate::sys::errno_text(errno)
            )),
        };
    }
    let mut found = None;
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has this many entries and lives until it is freed below.
        let device = unsafe { *list.add(at) };
        // SAFETY: the device is in the list; its name lives as long.
        let name = unsafe { CStr::from_ptr((library.get_device_name)(device)) };
        found = f(library, &name.to_string_lossy(), device);
        if found.is_some() {
            break;
        }
    }
    // SAFETY: made above and freed once. Open devices remain valid.
    unsafe { (library.free_device_list)(list) };
    Ok(found)
}

impl VerbsDevice {
    /// Opens the device of this name; the error says why that failed.
    pub(crate) fn open(name: &str) -> Result<Arc<VerbsDevice>, String> {
        let opened = with_devices(|library, one, device| {
            (one == name).then(|| {
                // SAFETY: the device is in the list, which still exists.
                let context = unsafe { (library.open_device)(device) };
                (library, context, errno())
            })
        })?;
        let Some((library, context, errno)) = opened else {
            return Err(format!("there is no verbs device {name}"));
        };
        if context.is_null() {
            let text = crate::sys::errno_text(errno);
            let hint = match errno {
                libc::EACCES | libc::EPERM => ": may you read and write /dev/infiniband/uverbs*?",
                _ => "",
            };
            return Err(format!("verbs device {name} does not open: {text}{hint}"));
        }
        let mut device = VerbsDevice {
            library,
            context,
            queue_max: 0,
            reads: (0, 0),
            receives_max: 0,
            completions_max: 0,
            ports: 0,
            firmware: String::new(),
        };
        device
            .ask()
            .map_err(|e| format!("verbs device {name}: {}", crate::sys::errno_text(e)))?;
        Ok(Arc::new(device))
    }

    /// Queries the device's limits.
    fn ask(&mut self) -> Result<(), Errno> {
        // SAFETY: all of its fields are numbers.
        let mut attr: DeviceAttr = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and the structure is as long as the library's.
        result(unsafe { (self.library.query_device)(self.context, &mut attr) })?;
        self.queue_max = attr.max_qp_wr.max(1) as u32;
        let reads = |most: i32| most.clamp(0, READS_MAX) as u8;
        self.reads = (reads(attr.max_qp_rd_atom), reads(attr.max_qp_init_rd_atom));
        self.receives_max = attr.max_srq_wr.max(0) as u32;
        self.completions_max = attr.max_cqe.max(1) as u32;
        self.ports = attr.phys_port_cnt;
        let firmware = attr.fw_ver.iter().take_while(|c| **c != 0);
        self.firmware = firmware.map(|c| *c as u8 as char).collect();
        // Events are polled from time to time, and the call must not block.
        //
        // SAFETY: the descriptor is the open context's.
        super::unblocking(unsafe { (*self.context).async_fd })
    }

    /// A port's state.
    pub(crate) fn port(&self, port: u8) -> Result<PortAttr, Errno> {
        let mut attr = PortAttr::default();
        // SAFETY: the context is open; the structure has the newest version's length, of which the
        // function fills the older part.
        result(unsafe { (self.library.query_port)(self.context, port, &mut attr) })?;
        Ok(attr)
    }

    /// An entry of a port's GID table.
    pub(crate) fn gid(&self, port: u8, index: u8) -> Option<[u8; 16]> {
        let mut gid = [0u64; 2];
        let (context, index) = (self.context, c_int::from(index));
        // SAFETY: the context is open, and the GID outlives the call.
        result(unsafe { (self.library.query_gid)(context, port, index, &mut gid) }).ok()?;
        let bytes = [gid[0].to_ne_bytes(), gid[1].to_ne_bytes()].concat();
        bytes.try_into().ok()
    }

    /// An entry of a port's P_Key table.
    pub(crate) fn pkey(&self, port: u8, index: u16) -> Option<u16> {
        let mut pkey = 0;
        let (context, index) = (self.context, c_int::from(index));
        // SAFETY: the context is open, and the key outlives the call.
        result(unsafe { (self.library.query_pkey)(context, port, index, &mut pkey) }).ok()?;
        Some(u16::from_be(pkey))
    }

    /// The descriptor that is readable when an asynchronous event waits.
    pub(crate) fn event_fd(&self) -> i32 {
        // SAFETY: the context is open.
        unsafe { (*self.context).async_fd }
    }

    /// The next asynchronous event and its name, without blocking. `docs/verbs.md` gives the reason
    /// for each mapping.
    pub(crate) fn event(&self) -> Option<(VerbsEvent, &'static str)> {
        let mut event = AsyncEvent {
            element: 0,
            event_type: 0,
        };
        // SAFETY: the context is open, its descriptor is non-blocking, and the event outlives the
        // call.
        if unsafe { (self.library.get_async_event)(self.context, &mut event) } != 0 {
            return None;
        }
        let port = event.element.to_ne_bytes()[0];
        let what = match event.event_type {
            0 | 8 | 14 => VerbsEvent::Fatal,
            1..=3 | 16 => {
                let pair = event.element as *const Qp;
                // SAFETY: the element of these events is a queue pair, which is not destroyed
                // before the event is acknowledged.
                VerbsEvent::PairBroken(unsafe { (*pair).qp_num })
            }
            9 => VerbsEvent::PortUp(port),
            10 => VerbsEvent::PortDown(port),
            11 | 12 | 17 | 18 => VerbsEvent::PortChanged(port),
            _ => VerbsEvent::Other,
        };
        let name = event_name(event.event_type);
        // SAFETY: the event was read above and is acknowledged once; without that, the objects it
        // names could not be destroyed.
        unsafe { (self.library.ack_async_event)(&mut event) };
        Some((what, name))
    }
}

impl Drop for VerbsDevice {
    fn drop(&mut self) {
        // SAFETY: opened once; all objects made from it hold a reference and are gone.
        unsafe { (self.library.close_device)(self.context) };
    }
}

impl PortAttr {
    /// Returns whether the port carries packets.
    pub(crate) fn active(&self) -> bool {
        self.state == ACTIVE
    }

    /// Returns whether the link is up and the port waits for a subnet manager.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.state, INIT | ARMED)
    }

    /// Returns whether the port is Ethernet (RoCE) and not InfiniBand.
    pub(crate) fn ethernet(&self) -> bool {
        self.link_layer == 2
    }

    /// Datagrams that the port dropped because of their Q_Key; some devices stop at 65,535.
    pub(crate) fn qkey_violations(&self) -> u32 {
        self.qkey_viol_cntr
    }

    /// Largest datagram in bytes, without headers.
    pub(crate) fn mtu(&self) -> usize {
        128 << self.active_mtu.clamp(1, 5)
    }

    /// Nominal rate in bytes/s.
    pub(crate) fn bytes_per_s(&self) -> u64 {
        let lanes = match self.active_width {
            1 => 1,
            2 => 4,
            4 => 8,
            8 => 12,
            16 => 2,
            _ => return 0,
        };
        let mbit = match self.active_speed {
            1 => 2_500,
            2 => 5_000,
            4 | 8 => 10_000,
            16 => 14_000,
            32 => 25_000,
            64 => 50_000,
            128 => 100_000,
            _ => return 0,
        };
        lanes * mbit * 125_000
    }
}

/// Converts the result of a function that returns an error number, or -1 and sets `errno`.
pub(super) fn result(code: c_int) -> Result<(), Errno> {
    match code {
        0 => Ok(()),
        -1 => Err(errno()),
        code => Err(code.abs()),
    }
}
