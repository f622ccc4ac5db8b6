//! Recorded hints of the four MPIs, and hints that must be refused.

use super::*;

/// The second query of MPICH and Intel MPI, with the capabilities of the first reply.
fn mpich() -> Wanted {
    let order = FI_ORDER_SAS | FI_ORDER_ATOMIC_ALL;
    Wanted {
        version: fi_version_of(2, 5),
        caps: caps_of(false),
        ep_type: FI_EP_RDM,
        threading: 3,
        control_progress: FI_PROGRESS_MANUAL,
        data_progress: FI_PROGRESS_MANUAL,
        av_type: FI_AV_TABLE,
        mr_mode: 1 << 9,
        cq_data_size: 4,
        tx: Side {
            op_flags: FI_COMPLETION | FI_DELIVERY_COMPLETE,
            msg_order: order,
            ..Side::default()
        },
        rx: Side {
            op_flags: FI_COMPLETION,
            msg_order: FI_ORDER_SAS,
            ..Side::default()
        },
        ..Wanted::default()
    }
}

#[test]
fn hints_without_capabilities_are_granted_all() {
    let grant = decide(&Wanted::default()).unwrap();
    assert_eq!(grant.caps, caps_of(false));
    for bit in [
        FI_DIRECTED_RECV,
        FI_MULTI_RECV,
        FI_LOCAL_COMM,
        FI_REMOTE_COMM,
        FI_SOURCE,
    ] {
        assert_ne!(grant.caps & bit, 0);
    }
    assert_eq!(grant.caps & (FI_RMA | FI_ATOMIC), 0);
    assert_eq!(grant.mr_mode, 0);
    assert_eq!((grant.tx.op_flags, grant.rx.op_flags), (0, 0));
}

#[test]
fn mpich_gets_its_threading_and_delivery_complete_back() {
    let grant = decide(&mpich()).unwrap();
    assert_eq!(grant.threading, 3);
    assert_eq!(grant.control_progress, FI_PROGRESS_MANUAL);
    assert_eq!(grant.tx.op_flags, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    assert_eq!(grant.mr_mode, 0);
    assert_eq!(grant.caps, caps_of(false));
}

#[test]
fn intel_s_key_modes_are_answered_with_none() {
    let grant = decide(&Wanted {
        mr_mode: 0x70,
        cq_data_size: 0,
        ..mpich()
    })
    .unwrap();
    assert_eq!(grant.mr_mode, 0);
}

#[test]
fn open_mpi_is_granted_directions_it_did_not_request() {
    let caps = FI_MSG | FI_TAGGED | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_DIRECTED_RECV;
    let wanted = Wanted {
        version: fi_version_of(1, 18),
        caps,
        av_type: FI_AV_MAP,
        ..Wanted::default()
    };
    let grant = decide(&wanted).unwrap();
    assert_eq!(grant.caps, caps | FI_SEND | FI_RECV);
    assert_eq!(grant.av_type, FI_AV_MAP);
    let tagged_only = decide(&Wanted {
        caps: FI_TAGGED,
        ..wanted
    })
    .unwrap();
    assert_eq!(
        tagged_only.caps & (FI_MSG | FI_DIRECTED_RECV),
        0,
        "only granted when asked"
    );
}

#[test]
fn unsupported_hints_are_refused() {
    let bad = [
        Wanted {
            caps: FI_MSG | FI_HMEM,
            ..Wanted::default()
        },
        Wanted {
            caps: FI_MSG | FI_RMA,
            ..Wanted::default()
        },
        Wanted {
            caps: FI_MSG | FI_ATOMIC,
            ..Wanted::default()
        },
        Wanted {
            ep_type: 1,
            ..Wanted::default()
        },
        Wanted {
            ep_type: 2,
            ..Wanted::default()
        },
        Wanted {
            addr_format: 2,
            ..Wanted::default()
        },
        Wanted {
            ctx_cnt: FI_SHARED_CONTEXT,
            ..Wanted::default()
        },
        Wanted {
            cq_data_size: 8,
            ..Wanted::default()
        },
        Wanted {
            foreign_name: true,
            ..Wanted::default()
        },
        Wanted {
            domain_caps: FI_SHARED_AV,
            ..Wanted::default()
        },
        Wanted {
            tx: Side {
                op_flags: FI_FENCE,
                ..Side::default()
            },
            ..Wanted::default()
        },
        Wanted {
            tx: Side {
                inject_size: 1 << 20,
                ..Side::default()
            },
            ..Wanted::default()
        },
        Wanted {
            rx: Side {
                msg_order: 1,
                ..Side::default()
            },
            ..Wanted::default()
        },
    ];
    for wanted in bad {
        assert!(decide(&wanted).is_err(), "{wanted:?}");
    }
}

#[test]
fn errors_of_unknown_sources_are_granted_on_request() {
    assert_eq!(decide(&Wanted::default()).unwrap().caps & FI_SOURCE_ERR, 0);
    let wanted = Wanted {
        caps: FI_TAGGED | FI_SOURCE | FI_SOURCE_ERR,
        max_err_data: 64,
        ..Wanted::default()
    };
    let grant = decide(&wanted).unwrap();
    assert_ne!(grant.caps & grant.rx.caps & FI_SOURCE_ERR, 0);
    assert_eq!(grant.tx.caps & FI_SOURCE_ERR, 0);
    let longer = Wanted {
        max_err_data: 65,
        ..wanted
    };
    let alone = Wanted {
        caps: FI_TAGGED | FI_SOURCE_ERR,
        ..wanted
    };
    assert!(decide(&longer).is_err() && decide(&alone).is_err());
}

#[test]
fn control_unified_is_never_returned() {
    let wanted = Wanted {
        control_progress: 3,
        data_progress: 1,
        ..Wanted::default()
    };
    let grant = decide(&wanted).unwrap();
    assert_eq!(grant.control_progress, FI_PROGRESS_MANUAL);
    assert_eq!(grant.data_progress, FI_PROGRESS_AUTO);
}

#[test]
fn old_programs_get_old_memory_modes() {
    let old = Wanted {
        version: fi_version_of(1, 4),
        ..Wanted::default()
    };
    assert_eq!(decide(&old).unwrap().mr_mode, FI_MR_SCALABLE);
    assert_eq!(
        decide(&Wanted {
            mr_mode: FI_MR_BASIC,
            ..old
        })
        .unwrap()
        .mr_mode,
        FI_MR_BASIC
    );
}

#[test]
fn remote_memory_is_offered_if_enabled() {
    let wanted = Wanted {
        remote: true,
        ..Wanted::default()
    };
    let grant = decide(&wanted).unwrap();
    assert_eq!(grant.caps, caps_of(true));
    assert_ne!(grant.tx.caps & FI_WRITE, 0);
    assert_ne!(grant.rx.caps & FI_REMOTE_WRITE, 0);
    let asks = Wanted {
        caps: FI_RMA | FI_ATOMIC,
        ..wanted
    };
    let granted = decide(&asks).unwrap().caps;
    assert_eq!(granted & (FI_MSG | FI_TAGGED | FI_SEND), 0);
    assert_eq!(granted & REMOTE_DIRECTIONS, REMOTE_DIRECTIONS);
    let refused = |caps| {
        let wanted = Wanted {
            remote: false,
            caps,
            ..wanted
        };
        decide(&wanted).unwrap_err()
    };
    assert!(refused(FI_MSG | FI_RMA | FI_READ).contains("FI_MARLINE_RMA=off"));
    assert!(refused(FI_ATOMIC).contains("FI_MARLINE_RMA=off"));
    assert!(!refused(FI_RMA | 1 << 62).contains("FI_MARLINE_RMA"));
}

/// Open MPI's btl/ofi requests virtual addresses and provider keys, and passes the domain of
/// mtl/ofi, which has offsets and caller's keys.
#[test]
fn an_open_domain_keeps_its_registration_mode() {
    const BASIC: c_int = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    let mode = |mr_mode, opened_mr_mode| {
        let wanted = Wanted {
            version: fi_version_of(1, 18),
            remote: true,
            mr_mode,
            opened_mr_mode,
            ..Wanted::default()
        };
        decide(&wanted).map(|grant| grant.mr_mode)
    };
    assert_eq!(mode(BASIC, None), Ok(BASIC));
    assert_eq!(mode(BASIC, Some(0)), Ok(0));
    assert_eq!(mode(BASIC, Some(BASIC)), Ok(BASIC));
    assert_eq!(mode(0, Some(0)), Ok(0));
    assert!(mode(0, Some(BASIC)).is_err());
}
