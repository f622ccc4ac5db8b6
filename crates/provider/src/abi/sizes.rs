//! Asserted sizes of the libfabric ABI.

use crate::abi::ep::*;
use crate::abi::*;

/// Asserts sizes of libfabric 2.6 and main on 64-bit machines, from the public headers.
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<fi_info>() == 120);
    assert!(size_of::<fi_domain_attr>() == 232);
    assert!(offset_of!(fi_domain_attr, max_ep_auth_key) == 192); // size in 1.17
    assert!(offset_of!(fi_domain_attr, max_group_id) == 200); // size in 1.20
    assert!(offset_of!(fi_domain_attr, max_cntr_value) == 208); // size in 2.4
    assert!(offset_of!(fi_domain_attr, max_xpu_ctx_cnt) == 224); // size in 2.5 and 2.6
    assert!(size_of::<fi_cq_err_entry>() == 88);
    assert!(offset_of!(fi_cq_err_entry, src_addr) == 80); // size in 1.17
    assert!(size_of::<fi_ops_av>() == 96);
    assert!(offset_of!(fi_ops_av, insert_auth_key) == 64); // size in 1.17
    assert!(size_of::<fi_tx_attr>() == 80);
    assert!(size_of::<fi_rx_attr>() == 64);
    assert!(offset_of!(fi_ep_attr, xpu_ctx) == 96); // size up to 2.6
    assert!(size_of::<fi_fabric_attr>() == 32);
    assert!(size_of::<fi_provider>() == 72);
    assert!(size_of::<fid>() == 24);
    assert!(size_of::<fid_fabric>() == 40);
    assert!(size_of::<fid_domain>() == 40);
    assert!(size_of::<fid_ep>() == 80);
    assert!(size_of::<fid_mr>() == 40);
    assert!(size_of::<fi_ops>() == 56);
    assert!(size_of::<fi_ops_fabric>() == 56);
    assert!(offset_of!(fi_ops_domain, xpu_ctx) == 96);
    assert!(size_of::<fi_ops_mr>() == 32);
    assert!(offset_of!(fi_ops_ep, export_xpu) == 64);
    assert!(size_of::<fi_ops_cm>() == 80);
    assert!(size_of::<fi_ops_msg>() == 80);
    assert!(size_of::<fi_ops_tagged>() == 80);
    assert!(size_of::<fi_ops_rma>() == 80);
    assert!(size_of::<fi_ops_atomic>() == 112);
    assert!(size_of::<fi_ops_collective>() == 96);
    assert!(offset_of!(fi_ops_cq, export_xpu) == 64);
    assert!(offset_of!(fi_ops_cntr, export_xpu) == 64);
    assert!(size_of::<fi_ops_eq>() == 48);
    assert!(size_of::<fi_cq_tagged_entry>() == 48);
    assert!(size_of::<fi_msg>() == 48);
    assert!(size_of::<fi_msg_tagged>() == 64);
    assert!(size_of::<fi_msg_rma>() == 64);
    assert!(size_of::<fi_av_attr>() == 48);
    assert!(size_of::<fi_cq_attr>() == 40); // up to 2.6; main adds a pointer, never read here
    assert!(size_of::<fi_cntr_attr>() == 24);
    assert!(size_of::<marline_engine::IoVec>() == size_of::<libc::iovec>());
    assert!(offset_of!(marline_engine::IoVec, len) == offset_of!(libc::iovec, iov_len));
};
