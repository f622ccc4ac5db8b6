//! The user's choices in mpiexec's arguments and in the environment.

use crate::run::mpi::{Kind, Matching, PML};

/// The variables that mpiexec's arguments set: argument, name and value.
pub fn assignments(args: &[String]) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    let word = |n: usize| args.get(n).map(String::as_str).unwrap_or_default();
    for (n, arg) in args.iter().enumerate() {
        let (first, second) = (word(n + 1), word(n + 2));
        let pair = match arg.trim_start_matches('-') {
            _ if !arg.starts_with('-') => arg.split_once('=').map(|pair| (1, pair)),
            "genv" | "env" if !first.contains('=') => Some((3, (first, second))),
            "mca" | "gmca" | "omca" => Some((3, (first, second))),
            _ => None,
        };
        let Some((words, (name, value))) = pair else {
            continue;
        };
        let mca = arg.ends_with("mca") && words == 3;
        let name = if mca {
            format!("OMPI_MCA_{name}")
        } else {
            name.to_owned()
        };
        let said = args[n..(n + words).min(args.len())].join(" ");
        found.push((said, name, value.to_owned()));
    }
    found
}

/// The software that matches messages to receives, according to mpiexec's arguments and these
/// variables (of equal names the last counts): Marline, unless Open MPI 5 is asked for its own
/// matching (ob1) or for survival of lost ranks (ULFM).
pub fn matching(kind: Kind, args: &[String], variables: &[(String, String)]) -> Matching {
    let says = |(at, arg): (usize, &String)| {
        let next = args.get(at + 1).map(String::as_str);
        let value = match arg.trim_start_matches('-').strip_prefix("with-ft") {
            Some("") => next,
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        value.is_some_and(is_on)
    };
    let of_args = assignments(args);
    let value = |name: &str| {
        let of_args = of_args.iter().rfind(|(_, n, _)| n == name);
        let of_args = of_args.map(|(.., value)| value.as_str());
        let variable = variables.iter().rfind(|(n, _)| n == name);
        of_args.or(variable.map(|(_, value)| value.as_str()))
    };
    let survives = args.iter().enumerate().any(says) || value(SURVIVES).is_some_and(is_on);
    match kind {
        Kind::OpenMpi5 if survives => Matching::OwnWithoutLostRanks,
        Kind::OpenMpi5 if value(PML) == Some("ob1") => Matching::Own,
        _ => Matching::Marlines,
    }
}

/// True if the job continues without lost ranks and therefore benefits from early detection of
/// silent peers: under ULFM, or if the launcher is told to spare the other ranks.
pub fn outlives_ranks(kind: Kind, args: &[String], variables: &[(String, String)]) -> bool {
    let on = |name: &str| variables.iter().any(|(n, v)| n == name && is_on(v));
    let said = |words: &[&str]| {
        let options = args.iter().filter(|arg| arg.starts_with('-'));
        let mut options = options.map(|arg| arg.trim_start_matches('-'));
        options.any(|option| words.contains(&option))
    };
    let of_launcher = match kind {
        Kind::Mpich | Kind::Intel => said(&["disable-auto-cleanup"]),
        Kind::OpenMpi5 | Kind::OpenMpi4 => {
            said(&["enable-recovery", "continuous"])
                || on("PRTE_MCA_state_base_recoverable")
                || on("OMPI_MCA_orte_enable_recovery")
        }
    };
    of_launcher || matching(kind, args, variables) == Matching::OwnWithoutLostRanks
}

/// Open MPI's choice whether ranks continue after the loss of others.
const SURVIVES: &str = "OMPI_MCA_mpi_ft_enable";

/// True if Open MPI reads this value as true.
fn is_on(value: &str) -> bool {
    let off = ["", "0", "no", "n", "none", "false", "f", "disabled"];
    !off.contains(&value.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_go_on_without_lost_ranks_are_known() {
        let of = |kind: Kind, text: &str, variables: &[(&str, &str)]| {
            let args: Vec<String> = text.split(' ').map(str::to_owned).collect();
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let variables: Vec<_> = variables.iter().map(owned).collect();
            outlives_ranks(kind, &args, &variables)
        };
        assert!(of(Kind::Mpich, "-disable-auto-cleanup -n 4 ./app", &[]));
        assert!(of(Kind::Intel, "-disable-auto-cleanup -n 4 ./app", &[]));
        assert!(of(Kind::OpenMpi5, "-n 4 --with-ft ulfm ./app", &[]));
        assert!(of(Kind::OpenMpi4, "-n 4 --enable-recovery ./app", &[]));
        let recoverable = [("PRTE_MCA_state_base_recoverable", "1")];
        assert!(of(Kind::OpenMpi5, "-n 4 ./app", &recoverable));
        for kind in [Kind::Mpich, Kind::Intel, Kind::OpenMpi5, Kind::OpenMpi4] {
            assert!(!of(kind, "-n 4 ./app", &[]), "{kind:?}");
        }
    }

    #[test]
    fn open_mpi_5_has_its_own_matching_on_request() {
        let of = |kind: Kind, text: &str, pml: &[&str]| {
            let args: Vec<String> = text.split(' ').map(str::to_owned).collect();
            let variables = pml.iter().map(|v| match v.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => (PML.to_owned(), (*v).to_owned()),
            });
            matching(kind, &args, &variables.collect::<Vec<_>>())
        };
        use Matching::{Marlines, Own, OwnWithoutLostRanks};
        const FT_ON: &str = "OMPI_MCA_mpi_ft_enable=1";
        const FT_OFF: &str = "OMPI_MCA_mpi_ft_enable=0";
        for (text, pml, expected) in [
            ("-n 4 --with-ft ulfm ./app", &[][..], OwnWithoutLostRanks),
            ("-n 4 --with-ft=ulfm ./app", &[], OwnWithoutLostRanks),
            ("-n 4 --with-ft mpi ./app", &[], OwnWithoutLostRanks),
            ("--mca mpi_ft_enable 1 ./app", &[], OwnWithoutLostRanks),
            (
                "--omca mpi_ft_enable true ./app",
                &["cm"],
                OwnWithoutLostRanks,
            ),
            (
                "-x OMPI_MCA_mpi_ft_enable=yes ./app",
                &[],
                OwnWithoutLostRanks,
            ),
            ("./app", &[FT_ON], OwnWithoutLostRanks),
            ("./app", &[FT_OFF, FT_ON], OwnWithoutLostRanks),
            ("./app", &[FT_ON, FT_OFF], Marlines),
            ("--mca mpi_ft_enable 0 ./app", &[FT_ON], Marlines),
            (
                "--mca mpi_ft_enable 0 --with-ft ulfm ./app",
                &[],
                OwnWithoutLostRanks,
            ),
            ("--with-ft false ./app", &[], Marlines),
            ("-n 4 --with-ft none ./app", &[], Marlines),
            ("-n 4 --with-ft=none ./app", &[], Marlines),
            ("-n 4 ./app --with-ft", &[], Marlines),
            ("-n 4 --with-ft ulfm ./app", &["ob1"], OwnWithoutLostRanks),
            ("-n 4 --mca pml ob1 ./app", &[], Own),
            ("-x OMPI_MCA_pml=ob1 ./app", &[], Own),
            ("./app", &["ob1"], Own),
            ("./app", &["cm"], Marlines),
            ("./app", &["^cm"], Marlines),
            ("--mca pml cm ./app", &["ob1"], Marlines),
            ("--mca pml ob1 ./app", &["cm"], Own),
        ] {
            assert_eq!(of(Kind::OpenMpi5, text, pml), expected, "{text} {pml:?}");
            let other = of(Kind::OpenMpi4, text, pml);
            assert_eq!(other, Marlines, "{text} {pml:?}");
        }
    }
}
