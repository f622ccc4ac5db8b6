//! The wishes of a user: the arguments of an mpiexec and the environment.

use crate::mpi::{Kind, Matching, PML};

/// The variables that the arguments of an mpiexec set: as they say it, name and value.
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

/// The side that matches messages to receives in a job with these arguments of mpiexec and these
/// variables (of two of a name the later counts): Marline, unless the user of Open MPI 5 asks for
/// its own way (ob1), or for a job that survives the loss of ranks (ULFM).
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

/// Open MPI's choice whether its ranks go on without those that they lost.
const SURVIVES: &str = "OMPI_MCA_mpi_ft_enable";

/// True if Open MPI takes this for yes.
fn is_on(value: &str) -> bool {
    let off = ["", "0", "no", "n", "none", "false", "f", "disabled"];
    !off.contains(&value.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_mpi_5_has_its_own_matching_where_it_is_asked_for() {
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
