//! The structures of libibverbs that we read or write, as in `infiniband/verbs.h`. A structure that
//! only the library allocates is declared up to the last field in use.
//!
//! The layout is the library's ABI (version 1), so it does not change. The test at the end compares
//! it with the installed header.

use libc::{c_char, c_int, c_void};

/// A device, opaque.
#[repr(C)]
pub(super) struct Device {
    opaque: [u8; 0],
}

/// The functions of a device's driver on the data path.
#[repr(C)]
pub(super) struct Ops {
    before: [*mut c_void; 11],
    pub(super) poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Completion) -> c_int,
    pub(super) req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    between: [*mut c_void; 7],
    pub(super) post_srq_recv:
        unsafe extern "C" fn(*mut Srq, *mut RecvRequest, *mut *mut RecvRequest) -> c_int,
    after_srq: [*mut c_void; 4],
    pub(super) post_send:
        unsafe extern "C" fn(*mut Qp, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    pub(super) post_recv:
        unsafe extern "C" fn(*mut Qp, *mut RecvRequest, *mut *mut RecvRequest) -> c_int,
    after: [*mut c_void; 5],
}

/// An open device.
#[repr(C)]
pub(super) struct Context {
    device: *mut Device,
    pub(super) ops: Ops,
    cmd_fd: c_int,
    pub(super) async_fd: c_int,
}

/// A protection domain.
#[repr(C)]
pub(super) struct Pd {
    opaque: [u8; 0],
}

/// An address handle.
#[repr(C)]
pub(super) struct Ah {
    opaque: [u8; 0],
}

/// A shared receive queue.
#[repr(C)]
pub(super) struct Srq {
    pub(super) context: *mut Context,
}

/// A completion channel.
#[repr(C)]
pub(super) struct Channel {
    context: *mut Context,
    pub(super) fd: c_int,
}

/// A completion queue.
#[repr(C)]
pub(super) struct Cq {
    pub(super) context: *mut Context,
}

/// A memory region.
#[repr(C)]
pub(super) struct Mr {
    context: *mut Context,
    pd: *mut Pd,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// A queue pair.
#[repr(C)]
pub(super) struct Qp {
    pub(super) context: *mut Context,
    qp_context: *mut c_void,
    pd: *mut Pd,
    send_cq: *mut Cq,
    recv_cq: *mut Cq,
    srq: *mut Srq,
    handle: u32,
    pub(super) qp_num: u32,
}

/// A contiguous part of registered memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// A posted send or RDMA operation. The destination's fields are a union in the header: for an RDMA
/// operation, `place` is the remote address and `first` the rkey; for a datagram, `place` is the
/// address handle, `first` the remote queue pair and `second` the Q_Key.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct SendRequest {
    pub(super) wr_id: u64,
    pub(super) next: *mut SendRequest,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_int,
    pub(super) send_flags: u32,
    pub(super) imm_data: u32,
    pub(super) place: u64,
    pub(super) first: u32,
    pub(super) second: u32,
    unused: [u64; 9],
}

impl Default for SendRequest {
    fn default() -> SendRequest {
        SendRequest {
            wr_id: 0,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: 0,
            opcode: 0,
            send_flags: 0,
            imm_data: 0,
            place: 0,
            first: 0,
            second: 0,
            unused: [0; 9],
        }
    }
}

/// A posted receive.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RecvRequest {
    pub(super) wr_id: u64,
    pub(super) next: *mut RecvRequest,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
}

/// Flag of a completion whose datagram has a GRH before its bytes.
const WITH_ROUTE: u32 = 1;
/// Flag of a completion with an immediate.
const WITH_IMMEDIATE: u32 = 1 << 1;
/// Opcode of a receive that was consumed by a write with an immediate.
const WRITE_LANDED: i32 = 129;

/// A completion (`ibv_wc`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Completion {
    /// The name of the request.
    pub(crate) wr_id: u64,
    /// 0: success.
    pub(crate) status: i32,
    /// Valid only after success.
    pub(crate) opcode: i32,
    vendor_err: u32,
    /// Received bytes, for datagrams including the 40 of the GRH.
    pub(crate) byte_len: u32,
    pub(super) imm_data: u32,
    /// The queue pair of the request.
    pub(crate) qp_num: u32,
    /// Datagrams only: the sender's queue pair.
    pub(crate) src_qp: u32,
    pub(super) wc_flags: u32,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}

impl Completion {
    /// The status of a request that was flushed with its queue pair.
    pub(crate) const FLUSHED: i32 = 5;

    /// The immediate of a receive, if it has one.
    pub(crate) fn immediate(&self) -> Option<u32> {
        (self.wc_flags & WITH_IMMEDIATE != 0).then_some(u32::from_be(self.imm_data))
    }

    /// Returns whether a datagram has a GRH before its bytes.
    pub(crate) fn has_route(&self) -> bool {
        self.wc_flags & WITH_ROUTE != 0
    }

    /// Returns whether a successful receive reports a landed write and holds no bytes itself.
    pub(crate) fn is_of_write(&self) -> bool {
        self.opcode == WRITE_LANDED
    }
}

/// An asynchronous event.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AsyncEvent {
    /// A pointer to the object, or a port number in its first bytes.
    pub(super) element: u64,
    pub(super) event_type: c_int,
}

/// Capacity of a queue pair.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// Attributes with which a queue pair is created.
#[repr(C)]
pub(super) struct QpInitAttr {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut Srq,
    pub(super) cap: QpCap,
    pub(super) qp_type: c_int,
    pub(super) sq_sig_all: c_int,
}

/// Attributes with which a shared receive queue is created.
#[repr(C)]
pub(super) struct SrqInitAttr {
    pub(super) srq_context: *mut c_void,
    pub(super) max_wr: u32,
    pub(super) max_sge: u32,
    pub(super) srq_limit: u32,
}

/// The destination of packets.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AhAttr {
    /// Aligned to eight bytes, as the header's union of a GID.
    pub(super) dgid: [u64; 2],
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) dlid: u16,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port_num: u8,
}

/// Attributes to which a queue pair is modified.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QpAttr {
    pub(super) qp_state: c_int,
    pub(super) cur_qp_state: c_int,
    pub(super) path_mtu: c_int,
    pub(super) path_mig_state: c_int,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp_num: u32,
    pub(super) qp_access_flags: u32,
    pub(super) cap: QpCap,
    pub(super) ah_attr: AhAttr,
    pub(super) alt_ah_attr: AhAttr,
    pub(super) pkey_index: u16,
    pub(super) alt_pkey_index: u16,
    pub(super) en_sqd_async_notify: u8,
    pub(super) sq_draining: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port_num: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alt_port_num: u8,
    pub(super) alt_timeout: u8,
    pub(super) rate_limit: u32,
}

/// A port's state (`ibv_port_attr`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortAttr {
    /// 4: active.
    pub(crate) state: i32,
    max_mtu: i32,
    /// 1: 256 bytes; each further step doubles it.
    pub(crate) active_mtu: i32,
    /// GIDs in the port's table.
    pub(crate) gid_tbl_len: i32,
    port_cap_flags: u32,
    /// Largest message in bytes.
    pub(crate) max_msg_sz: u32,
    bad_pkey_cntr: u32,
    pub(super) qkey_viol_cntr: u32,
    /// P_Keys in the port's table.
    pub(crate) pkey_tbl_len: u16,
    /// Local identifier; 0 on RoCE.
    pub(crate) lid: u16,
    sm_lid: u16,
    lmc: u8,
    max_vl_num: u8,
    sm_sl: u8,
    subnet_timeout: u8,
    init_type_reply: u8,
    /// Number of lanes: 1, 2, 4, 8 and 16 mean 1, 4, 8, 12 and 2.
    pub(crate) active_width: u8,
    /// Speed of a lane: 1, 2, 4, 8, 16, 32, 64 and 128 mean 2.5, 5, 10, 10, 14, 25, 50 and 100
    /// Gbit/s.
    pub(crate) active_speed: u8,
    phys_state: u8,
    /// 1: InfiniBand, 2: Ethernet.
    pub(crate) link_layer: u8,
    flags: u8,
    port_cap_flags2: u16,
}

/// Limits of a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DeviceAttr {
    pub(super) fw_ver: [c_char; 64],
    guids: [u64; 2],
    sizes: [u64; 2],
    vendor: [u32; 3],
    max_qp: c_int,
    pub(super) max_qp_wr: c_int,
    device_cap_flags: u32,
    max_sge: c_int,
    max_sge_rd: c_int,
    max_cq: c_int,
    pub(super) max_cqe: c_int,
    max_mr: c_int,
    max_pd: c_int,
    pub(super) max_qp_rd_atom: c_int,
    between: [c_int; 2],
    pub(super) max_qp_init_rd_atom: c_int,
    more: [c_int; 10],
    max_ah: c_int,
    max_fmr: c_int,
    max_map_per_fmr: c_int,
    max_srq: c_int,
    pub(super) max_srq_wr: c_int,
    max_srq_sge: c_int,
    max_pkeys: u16,
    local_ca_ack_delay: u8,
    pub(super) phys_port_cnt: u8,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;
    use std::mem::offset_of;
    use std::process::Command;

    macro_rules! at {
        ($($of:literal, $ours:ty { $($field:ident = $theirs:literal),* };)*) => {
            vec![$($((concat!("offsetof(struct ", $of, ", ", $theirs, ")"),
                offset_of!($ours, $field)),)*)*]
        };
    }

    /// Offsets of fields, by the header's names.
    fn places() -> Vec<(&'static str, usize)> {
        at! {
            "ibv_context", Context { ops = "ops", async_fd = "async_fd" };
            "ibv_context_ops", Ops {
                poll_cq = "poll_cq", req_notify_cq = "req_notify_cq",
                post_srq_recv = "post_srq_recv", post_send = "post_send", post_recv = "post_recv"
            };
            "ibv_srq", Srq { context = "context" };
            "ibv_comp_channel", Channel { fd = "fd" };
            "ibv_cq", Cq { context = "context" };
            "ibv_mr", Mr { lkey = "lkey", rkey = "rkey" };
            "ibv_qp", Qp { context = "context", qp_num = "qp_num" };
            "ibv_sge", Sge { addr = "addr", length = "length", lkey = "lkey" };
            "ibv_send_wr", SendRequest {
                wr_id = "wr_id", next = "next", sg_list = "sg_list", num_sge = "num_sge",
                opcode = "opcode", send_flags = "send_flags", imm_data = "imm_data",
                place = "wr.rdma.remote_addr", first = "wr.rdma.rkey",
                second = "wr.ud.remote_qkey"
            };
            "ibv_recv_wr", RecvRequest {
                wr_id = "wr_id", next = "next", sg_list = "sg_list", num_sge = "num_sge"
            };
            "ibv_wc", Completion {
                wr_id = "wr_id", status = "status", opcode = "opcode", byte_len = "byte_len",
                imm_data = "imm_data", wc_flags = "wc_flags", qp_num = "qp_num", src_qp = "src_qp"
            };
            "ibv_async_event", AsyncEvent { element = "element", event_type = "event_type" };
            "ibv_qp_init_attr", QpInitAttr {
                qp_context = "qp_context", send_cq = "send_cq", recv_cq = "recv_cq", srq = "srq",
                cap = "cap", qp_type = "qp_type", sq_sig_all = "sq_sig_all"
            };
            "ibv_ah_attr", AhAttr {
                dgid = "grh.dgid", flow_label = "grh.flow_label", sgid_index = "grh.sgid_index",
                hop_limit = "grh.hop_limit", traffic_class = "grh.traffic_class", dlid = "dlid",
                sl = "sl", is_global = "is_global", port_num = "port_num"
            };
            "ibv_qp_attr", QpAttr {
                qp_state = "qp_state", path_mtu = "path_mtu", qkey = "qkey", rq_psn = "rq_psn",
                sq_psn = "sq_psn", dest_qp_num = "dest_qp_num",
                qp_access_flags = "qp_access_flags", ah_attr = "ah_attr",
                pkey_index = "pkey_index", max_rd_atomic = "max_rd_atomic",
                max_dest_rd_atomic = "max_dest_rd_atomic", min_rnr_timer = "min_rnr_timer",
                port_num = "port_num", timeout = "timeout", retry_cnt = "retry_cnt",
                rnr_retry = "rnr_retry"
            };
            "ibv_port_attr", PortAttr {
                state = "state", active_mtu = "active_mtu", gid_tbl_len = "gid_tbl_len",
                max_msg_sz = "max_msg_sz", pkey_tbl_len = "pkey_tbl_len", lid = "lid",
                active_width = "active_width",
                active_speed = "active_speed", link_layer = "link_layer"
            };
            "ibv_device_attr", DeviceAttr {
                max_qp_rd_atom = "max_qp_rd_atom",
                max_qp_init_rd_atom = "max_qp_init_rd_atom",
                fw_ver = "fw_ver", max_qp_wr = "max_qp_wr", max_cqe = "max_cqe",
                max_srq_wr = "max_srq_wr", phys_port_cnt = "phys_port_cnt"
            };
        }
    }

    /// Sizes, by the header's names.
    fn sizes() -> Vec<(&'static str, usize)> {
        vec![
            ("sizeof(struct ibv_context_ops)", size_of::<Ops>()),
            ("sizeof(struct ibv_sge)", size_of::<Sge>()),
            ("sizeof(struct ibv_send_wr)", size_of::<SendRequest>()),
            ("sizeof(struct ibv_recv_wr)", size_of::<RecvRequest>()),
            ("sizeof(struct ibv_wc)", size_of::<Completion>()),
            ("sizeof(struct ibv_async_event)", size_of::<AsyncEvent>()),
            ("sizeof(struct ibv_qp_init_attr)", size_of::<QpInitAttr>()),
            ("sizeof(struct ibv_srq_init_attr)", size_of::<SrqInitAttr>()),
            ("sizeof(struct ibv_ah_attr)", size_of::<AhAttr>()),
            ("sizeof(struct ibv_qp_attr)", size_of::<QpAttr>()),
            ("sizeof(struct ibv_port_attr)", size_of::<PortAttr>()),
            ("sizeof(struct ibv_device_attr)", size_of::<DeviceAttr>()),
        ]
    }

    #[test]
    fn the_layout_is_that_of_the_header() {
        let ours = [places(), sizes()].concat();
        let headers = ["infiniband/verbs.h", "stddef.h", "stdio.h"];
        let mut program: String = headers.map(|h| format!("#include <{h}>\n")).concat();
        program.push_str("int main(void) {\n");
        for (what, _) in &ours {
            let _ = writeln!(program, "printf(\"%zu\\n\", (size_t)({what}));");
        }
        program.push_str("return 0; }\n");
        let folder = std::env::temp_dir().join(format!("marline-layout-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
        std::fs::write(&source, program).unwrap();
        let compiled = Command::new("cc")
            .args(["-o".as_ref(), binary.as_os_str(), source.as_os_str()])
            .status()
            .unwrap();
        assert!(
            compiled.success(),
            "cc and libibverbs-dev: scripts/install-deps"
        );
        let output = Command::new(&binary).output().unwrap().stdout;
        std::fs::remove_dir_all(&folder).unwrap();
        let theirs: Vec<usize> = String::from_utf8(output)
            .unwrap()
            .lines()
            .map(|line| line.parse().unwrap())
            .collect();
        let pairs = ours.iter().zip(&theirs);
        let differ: Vec<_> = pairs.filter(|((_, a), b)| a != *b).collect();
        assert!(
            theirs.len() == ours.len() && differ.is_empty(),
            "{differ:?}"
        );
    }
}
