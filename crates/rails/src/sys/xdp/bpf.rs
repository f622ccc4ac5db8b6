//! The `bpf` calls that load a program and attach it to an interface.

use super::soon::soon;
use crate::sys::{check_long, Errno};
use crate::xdp::program::{map_key, Instruction};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Commands of `bpf`.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
/// Attach type of a program at an interface.
const ATTACH_XDP: u32 = 37;
/// Attach in the driver, and in the stack for drivers without support.
const IN_DRIVER: u32 = 1 << 2;
const IN_STACK: u32 = 1 << 1;

/// Every port of a queue can have a socket.
const PORTS: u32 = 1 << 16;
/// Offset and length of the name in what the kernel tells of a program (`bpf_prog_info`).
const INFO_NAME: usize = 64;
const NAME_LEN: usize = 16;

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapUpdate {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct ObjInfo {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

#[repr(C)]
#[derive(Default)]
struct LinkUpdate {
    link_fd: u32,
    new_prog_fd: u32,
    flags: u32,
    old_prog_fd: u32,
}

/// The program at an interface, with its map. The kernel detaches the program when the last
/// descriptor of the link is closed, also by the end of the process for any reason.
pub(crate) struct Steering {
    map: OwnedFd,
    link: OwnedFd,
    in_driver: bool,
}

impl Steering {
    /// Attaches a program to the interface with this index, for sockets on so many queues.
    /// `assemble` makes the program for the descriptor of the map. The error names the step.
    pub(crate) fn attach(
        interface: u32,
        queues: u32,
        assemble: impl FnOnce(i32) -> Vec<Instruction>,
    ) -> Result<Steering, (&'static str, Errno)> {
        let map = create_map(queues).map_err(|errno| ("map", errno))?;
        let code = assemble(map.as_raw_fd());
        let program = load(&code).map_err(|errno| ("program", errno))?;
        let linked = soon(|| match link(&program, interface, IN_DRIVER) {
            Err(libc::EOPNOTSUPP) => Ok((link(&program, interface, IN_STACK)?, false)),
            linked => Ok((linked?, true)),
        });
        let (link, in_driver) = linked.map_err(|errno| ("link", errno))?;
        Ok(Steering {
            map,
            link,
            in_driver,
        })
    }

    /// Attaches another program, with the same map, in the place of the present one.
    pub(crate) fn replace(
        &self,
        assemble: impl FnOnce(i32) -> Vec<Instruction>,
    ) -> Result<(), (&'static str, Errno)> {
        let code = assemble(self.map.as_raw_fd());
        let program = load(&code).map_err(|errno| ("program", errno))?;
        let update = LinkUpdate {
            link_fd: self.link.as_raw_fd() as u32,
            new_prog_fd: program.as_raw_fd() as u32,
            ..LinkUpdate::default()
        };
        // SAFETY: the attributes hold no pointers.
        let updated = unsafe { bpf(LINK_UPDATE, &update) };
        updated.map(|_| ()).map_err(|errno| ("link", errno))
    }

    /// Returns whether the driver runs the program, before the stack sees a frame.
    pub(crate) fn is_in_driver(&self) -> bool {
        self.in_driver
    }

    /// Gives datagrams to a port to a socket, which has this queue of the interface already.
    pub(crate) fn redirect(
        &self,
        queue: u32,
        port: u16,
        socket: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let (key, value) = (map_key(queue, port), socket.as_raw_fd());
        let update = MapUpdate {
            map_fd: self.map.as_raw_fd() as u32,
            key: (&raw const key) as u64,
            value: (&raw const value) as u64,
            ..MapUpdate::default()
        };
        // SAFETY: key and value outlive the call and have the sizes of the map's.
        unsafe { bpf(MAP_UPDATE_ELEM, &update) }.map(|_| ())
    }

    /// Gives datagrams to a port to the kernel again.
    pub(crate) fn clear(&self, queue: u32, port: u16) {
        let key = map_key(queue, port);
        let delete = MapUpdate {
            map_fd: self.map.as_raw_fd() as u32,
            key: (&raw const key) as u64,
            ..MapUpdate::default()
        };
        // SAFETY: the key outlives the call and has the size of the map's. (The entry is gone
        // already if the socket was closed.)
        let _ = unsafe { bpf(MAP_DELETE_ELEM, &delete) };
    }
}

/// The name of the program with a number; `None` without the privilege (CAP_SYS_ADMIN).
pub(crate) fn program_name(number: u32) -> Option<String> {
    let by_id = [number, 0, 0];
    // SAFETY: the attributes hold no pointers.
    let program = unsafe { opened(PROG_GET_FD_BY_ID, &by_id) }.ok()?;
    let mut info = [0u8; INFO_NAME + NAME_LEN];
    let ask = ObjInfo {
        bpf_fd: program.as_raw_fd() as u32,
        info_len: info.len() as u32,
        info: info.as_mut_ptr() as u64,
    };
    // SAFETY: the kernel fills at most `info_len` bytes of a buffer that outlives the call; all
    // zeroes ask for no further buffers.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &ask) }.ok()?;
    let name = info[INFO_NAME..].split(|&byte| byte == 0).next()?;
    Some(String::from_utf8_lossy(name).into_owned()).filter(|name| !name.is_empty())
}

fn create_map(queues: u32) -> Result<OwnedFd, Errno> {
    let create = MapCreate {
        map_type: MAP_TYPE_XSKMAP,
        key_size: 4,
        value_size: 4,
        max_entries: queues * PORTS,
        map_flags: 0,
    };
    // SAFETY: the attributes hold no pointers.
    unsafe { opened(MAP_CREATE, &create) }
}

fn load(code: &[Instruction]) -> Result<OwnedFd, Errno> {
    let mut load = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        insn_cnt: code.len() as u32,
        insns: code.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        ..ProgLoad::default()
    };
    load.prog_name[..7].copy_from_slice(b"marline");
    // SAFETY: instructions and licence outlive the call; `Instruction` has the kernel's layout.
    unsafe { opened(PROG_LOAD, &load) }
}

fn link(program: &OwnedFd, interface: u32, flags: u32) -> Result<OwnedFd, Errno> {
    let create = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        target_ifindex: interface,
        attach_type: ATTACH_XDP,
        flags,
    };
    // SAFETY: the attributes hold no pointers.
    unsafe { opened(LINK_CREATE, &create) }
}

/// Makes a call that opens a descriptor, which the kernel closes at an `exec`.
///
/// # Safety
/// As for [`bpf`].
unsafe fn opened<T>(command: libc::c_int, attributes: &T) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's duty.
    let fd = unsafe { bpf(command, attributes) }?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// # Safety
/// `T` has the layout of the command's attributes, whose pointers are valid for the call.
unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> Result<usize, Errno> {
    let len = size_of::<T>();
    // SAFETY: the attributes are readable for `len` bytes; the caller answers for their pointers.
    check_long(unsafe { libc::syscall(libc::SYS_bpf, command, attributes as *const T, len) })
}
