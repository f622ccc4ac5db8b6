//! Open MPI parameters in files: the user's and the installation's, which Open MPI reads by itself,
//! and files named by `--tune`.

use crate::run::mpi::{Kind, Mpi};
use crate::run::mpiexec_args::assignments;
use std::path::{Path, PathBuf};

/// Longest parameter file in bytes. The word after `--tune` may be an argument of the program and
/// name any file.
const FILE_MAX: u64 = 1 << 20;
/// Variables that replace the two files which Open MPI reads by itself.
const FILES: [&str; 2] = ["OMPI_MCA_mca_base_param_files", "OMPI_MCA_mca_param_files"];

type Variables = Vec<(String, String)>;

/// The parameters in the files that Open MPI 5 reads by itself, as variables; of equal names the
/// last counts.
pub fn of_files(mpi: &Mpi, environment: &[(String, String)]) -> Variables {
    let value = |name: &str| environment.iter().find(|(n, _)| n == name);
    let files: Vec<PathBuf> = match FILES.iter().find_map(|name| value(name)) {
        _ if mpi.kind != Kind::OpenMpi5 => Vec::new(),
        Some((_, list)) => list.split([',', ':']).map(PathBuf::from).collect(),
        None => {
            let of_user = value("HOME").map(|(_, home)| Path::new(home).join(".openmpi"));
            let of_user = of_user.map(|folder| folder.join("mca-params.conf"));
            let of_all = prefix(mpi).map(|prefix| prefix.join("etc/openmpi-mca-params.conf"));
            of_user.into_iter().chain(of_all).collect()
        }
    };
    let texts = files.iter().rev().filter_map(|file| read(file));
    let words = texts.flat_map(|text| words(&text)).collect::<Vec<_>>();
    let all = assignments(&words).into_iter();
    all.map(|(_, name, value)| (name, value)).collect()
}

/// mpiexec's arguments, with the contents of the files appended to each `--tune` (or `--am`).
pub fn spelled_out(mpi: &Mpi, args: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for (n, arg) in args.iter().enumerate() {
        all.push(arg.clone());
        let list = match arg.trim_start_matches('-') {
            _ if mpi.kind != Kind::OpenMpi5 || !arg.starts_with('-') => None,
            "tune" | "am" => args.get(n + 1).map(String::as_str),
            word => word.strip_prefix("tune=").or(word.strip_prefix("am=")),
        };
        for file in list.into_iter().flat_map(|list| list.split(',')) {
            let there = || {
                Some(
                    prefix(mpi)?
                        .join("share/openmpi/amca-param-sets")
                        .join(file),
                )
            };
            let text = read(Path::new(file)).or_else(|| read(&there()?));
            all.extend(text.iter().flat_map(|text| words(text)));
        }
    }
    all
}

/// The installation directory of the MPI.
fn prefix(mpi: &Mpi) -> Option<PathBuf> {
    // The file is bin/mpiexec or lib/libmpi.so.40.
    let file = std::fs::canonicalize(&mpi.file).ok()?;
    Some(file.parent()?.parent()?.to_owned())
}

fn read(file: &Path) -> Option<String> {
    let found = file.metadata().ok()?;
    let fits = found.is_file() && found.len() <= FILE_MAX;
    fits.then(|| std::fs::read_to_string(file).ok()).flatten()
}

/// A parameter file as arguments: its lines are `NAME = VALUE` or arguments.
fn words(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('-') {
            all.extend(line.split_whitespace().map(str::to_owned));
        } else if let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#'))
        {
            let value = value.trim().trim_matches(['"', '\'']);
            all.extend(["--mca", name.trim(), value].map(str::to_owned));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary installation of Open MPI 5, and a home directory beside it.
    fn installed(name: &str) -> (PathBuf, Mpi) {
        let folder = std::env::temp_dir().join(format!("marline-{name}-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("bin/mpiexec", "");
        write(
            "etc/openmpi-mca-params.conf",
            "# all\npml = ob1\nbtl=^usnic\n",
        );
        write(
            "home/.openmpi/mca-params.conf",
            "  mpi_ft_enable = 1\n#pml=no\npml=\"cm\"\n",
        );
        write("share/openmpi/amca-param-sets/set", "mpi_ft_enable=true\n");
        write("tuned", "-mca pml ob1 -x A=b\n");
        let mpi = Mpi {
            kind: Kind::OpenMpi5,
            version: "5.0.0".to_owned(),
            file: folder.join("bin/mpiexec"),
            path: None,
        };
        (folder, mpi)
    }

    #[test]
    fn files_of_the_user_count_before_those_of_the_installation() {
        let (folder, mut mpi) = installed("files");
        let text = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let read = |mpi: &Mpi, name: &str, value: &str| {
            let all = of_files(mpi, &[(name.to_owned(), value.to_owned())]);
            let all = all.iter().map(|(name, value)| format!("{name}={value}"));
            all.collect::<Vec<_>>().join(" ")
        };
        let both = "OMPI_MCA_pml=ob1 OMPI_MCA_btl=^usnic OMPI_MCA_mpi_ft_enable=1 OMPI_MCA_pml=cm";
        assert_eq!(read(&mpi, "HOME", &text("home")), both);
        assert_eq!(read(&mpi, FILES[0], &text("tuned")), "OMPI_MCA_pml=ob1 A=b");
        assert_eq!(read(&mpi, FILES[1], &text("nowhere")), "");
        mpi.kind = Kind::OpenMpi4;
        assert_eq!(read(&mpi, "HOME", &text("home")), "");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_that_arguments_name_are_arguments() {
        let (folder, mpi) = installed("tune");
        let of = |line: &str| {
            let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
            spelled_out(&mpi, &args).join(" ")
        };
        let tuned = folder.join("tuned").to_string_lossy().into_owned();
        assert_eq!(
            of(&format!("--tune set,{tuned} ./app")),
            format!("--tune --mca mpi_ft_enable true -mca pml ob1 -x A=b set,{tuned} ./app")
        );
        assert_eq!(
            of("-am=set ./app"),
            "-am=set --mca mpi_ft_enable true ./app"
        );
        assert_eq!(of("--tune nothing tune set"), "--tune nothing tune set");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
