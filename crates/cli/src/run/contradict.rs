//! Refuses user settings that would keep a job from using Marline, and reports user settings that
//! are overridden.

use crate::run::mpi::{Kind, BTL, PML};
use crate::run::mpiexec_args::assignments;

/// Marline's variables that decide the transport.
const DECIDE: [&str; 11] = [
    "FI_PROVIDER",
    "FI_PROVIDER_PATH",
    "MPIR_CVAR_CH4_NETMOD",
    "MPIR_CVAR_NOLOCAL",
    "I_MPI_OFI_PROVIDER",
    "I_MPI_FABRICS",
    PML,
    "OMPI_MCA_mtl",
    "OMPI_MCA_mtl_ofi_provider_include",
    "OMPI_MCA_btl_ofi_mode",
    "OMPI_MCA_opal_common_ofi_provider_include",
];

/// True if Open MPI's own matching uses Marline (btl/ofi) between hosts; within a host it may use
/// other transports.
fn by_marline(layers: &str) -> bool {
    let named = |name| layers.split(',').any(|layer| layer == name);
    !layers.starts_with('^') && named("ofi") && !named("tcp")
}

/// A variable that Marline does not set: its name, the MPIs that it affects, and a test for values
/// that keep Marline in use.
type Undoing = (&'static str, &'static [Kind], fn(&str) -> bool);

const UNDOING: [Undoing; 3] = [
    ("I_MPI_FABRICS", &[Kind::Intel], |v| v.contains("ofi")),
    (
        "MPIR_CVAR_OFI_USE_PROVIDER",
        &[Kind::Mpich, Kind::Intel],
        |v| v.is_empty() || v.contains("marline"),
    ),
    (
        "OMPI_MCA_mtl_ofi_provider_exclude",
        &[Kind::OpenMpi4, Kind::OpenMpi5],
        |v| !v.contains("marline"),
    ),
];

type Variables = [(String, String)];

/// Refuses a job whose mpiexec arguments or environment select another transport. Returns a text
/// for each overridden variable of the environment.
pub fn check(
    kind: Kind,
    set: &Variables,
    args: &[String],
    environment: &Variables,
) -> Result<Vec<String>, String> {
    for (said, name, value) in assignments(args) {
        let agrees = |ours: &String| *ours == value || name == BTL && by_marline(&value);
        if let Some(ours) = ours(set, &name).filter(|ours| !agrees(ours)) {
            return Err(format!(
                "`{said}` contradicts {name}={ours}, without which the job does not use Marline: \
                 leave it away, or start mpiexec without `marline run`"
            ));
        }
        check_undoing(kind, set, &said, (&name, &value))?;
    }
    let mut gives_way = Vec::new();
    for (name, value) in environment {
        check_undoing(kind, set, &format!("{name}={value}"), (name, value))?;
        let ours = ours(set, name).filter(|ours| *ours != value);
        gives_way.extend(
            ours.map(|ours| {
                format!("{name}={value} in the environment gives way to {name}={ours}")
            }),
        );
    }
    Ok(gives_way)
}

/// The value that Marline sets, if the variable decides the transport.
fn ours<'a>(set: &'a Variables, name: &str) -> Option<&'a String> {
    let of = |name: &str| set.iter().find(|(n, _)| n == name).map(|(_, value)| value);
    // With pml/cm the BTL only carries windows and is a preference.
    let decides = DECIDE.contains(&name) || name == BTL && of(PML).is_some_and(|v| v == "ob1");
    of(name).filter(|_| decides)
}

fn check_undoing(
    kind: Kind,
    set: &Variables,
    said: &str,
    (name, value): (&str, &str),
) -> Result<(), String> {
    let mut rows = UNDOING.iter();
    let undone = rows.any(|(n, kinds, good)| *n == name && kinds.contains(&kind) && !good(value));
    match undone && !set.iter().any(|(n, _)| n == name) {
        true => Err(format!(
            "`{said}` keeps the job from Marline: leave it away, or start the program without \
             `marline`"
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::mpi::{variables, Fabric};
    use crate::run::mpiexec_args::matching;

    fn checked(
        kind: Kind,
        args: &str,
        environment: &[(&str, &str)],
    ) -> Result<Vec<String>, String> {
        let words: Vec<String> = args.split(' ').map(str::to_owned).collect();
        let pairs = environment.iter();
        let environment: Vec<_> = pairs.map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
        let matching = matching(kind, &words, &environment);
        let vars = variables(kind, &Fabric::Marline("/p".into()), false, matching);
        let set: Vec<_> = vars
            .iter()
            .map(|v| (v.name.to_owned(), v.value.clone()))
            .collect();
        check(kind, &set, &words, &environment)
    }

    #[test]
    fn arguments_that_choose_another_transport_are_refused() {
        for (kind, args, said) in [
            (
                Kind::Mpich,
                "-n 2 -genv FI_PROVIDER tcp ./app",
                "`-genv FI_PROVIDER tcp`",
            ),
            (
                Kind::Mpich,
                "-env FI_PROVIDER=tcp ./app",
                "`FI_PROVIDER=tcp`",
            ),
            (
                Kind::Intel,
                "-genv I_MPI_FABRICS shm ./app",
                "`-genv I_MPI_FABRICS shm`",
            ),
            (
                Kind::Intel,
                "-genv I_MPI_OFI_PROVIDER tcp ./app",
                "I_MPI_OFI_PROVIDER=marline",
            ),
            (
                Kind::OpenMpi5,
                "--mca pml ucx ./app",
                "`--mca pml ucx` contradicts OMPI_MCA_pml=cm",
            ),
            (
                Kind::OpenMpi4,
                "--mca pml ob1 ./app",
                "`--mca pml ob1` contradicts OMPI_MCA_pml=cm",
            ),
            (
                Kind::OpenMpi5,
                "--mca pml ob1 --mca btl tcp,self ./app",
                "`--mca btl tcp,self` contradicts OMPI_MCA_btl=ofi,sm,self",
            ),
            (
                Kind::OpenMpi5,
                "--mca pml ob1 --mca btl ^sm ./app",
                "OMPI_MCA_btl=ofi,sm,self",
            ),
            (Kind::OpenMpi4, "-mca mtl ^ofi ./app", "OMPI_MCA_mtl=ofi"),
            (
                Kind::OpenMpi5,
                "-x FI_PROVIDER=tcp ./app",
                "FI_PROVIDER=marline",
            ),
            (
                Kind::Mpich,
                "-n 2 env FI_PROVIDER=tcp ./app",
                "FI_PROVIDER=marline",
            ),
        ] {
            let error = checked(kind, args, &[]).unwrap_err();
            assert!(error.contains(said), "{args}: {error}");
        }
    }

    #[test]
    fn arguments_that_agree_or_decide_nothing_pass() {
        for (kind, args) in [
            (
                Kind::Mpich,
                "-n 2 -genv FI_PROVIDER marline ./app -x a=b --mca",
            ),
            (Kind::Mpich, "-genv MPIR_CVAR_CH4_OFI_ENABLE_RMA 1 ./app"),
            (Kind::Intel, "-genv I_MPI_FABRICS shm:ofi ./app"),
            (
                Kind::OpenMpi5,
                "--mca pml cm --mca btl self -x FI_PROVIDER ./app",
            ),
            (Kind::OpenMpi5, "--mca pml ob1 ./app"),
            (Kind::OpenMpi5, "--mca pml ob1 --mca btl self,ofi ./app"),
            (Kind::Mpich, "-genv"),
        ] {
            assert_eq!(checked(kind, args, &[]), Ok(Vec::new()), "{args}");
        }
    }

    #[test]
    fn a_preset_variable_is_refused_or_named() {
        let said = checked(
            Kind::Mpich,
            "./app",
            &[("FI_PROVIDER", "tcp"), ("HOME", "/")],
        );
        let [said] = &said.unwrap()[..] else { panic!() };
        assert!(
            said.contains("FI_PROVIDER=tcp") && said.contains("FI_PROVIDER=marline"),
            "{said}"
        );
        let same = [("FI_PROVIDER", "marline"), ("OMPI_MCA_pml", "ob1")];
        assert_eq!(checked(Kind::Mpich, "./app", &same), Ok(Vec::new()));
        let ob1 = [("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_btl", "tcp,self")];
        let said = checked(Kind::OpenMpi5, "./app", &ob1).unwrap();
        let [said] = &said[..] else {
            panic!("{said:?}")
        };
        assert!(said.contains("OMPI_MCA_btl=ofi,sm,self"), "{said}");
        for (kind, name, value) in [
            (Kind::Intel, "I_MPI_FABRICS", "shm"),
            (Kind::Mpich, "MPIR_CVAR_OFI_USE_PROVIDER", "tcp"),
            (
                Kind::OpenMpi5,
                "OMPI_MCA_mtl_ofi_provider_exclude",
                "tcp,marline",
            ),
        ] {
            let error = checked(kind, "./app", &[(name, value)]).unwrap_err();
            assert!(error.contains(name), "{error}");
        }
    }
}
