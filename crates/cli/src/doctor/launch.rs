//! Starts the agents on the hosts: by ssh, by Slurm, or by a command of the user.

use super::finding::Finding;
use super::session::Failure;
use crate::tool;
use marline_codes::Code;
use std::process::Command;

/// The way to start a command on a host: words with `{host}`, and the command.
pub struct By {
    words: Vec<String>,
    marline: String,
}

/// Options of ssh: no question may wait for a person, and no dead host for minutes.
const SSH: &str = "ssh -o BatchMode=yes -o ConnectTimeout=5 {host}";
const SRUN: &str = "srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist={host}";
/// The option of ssh that forbids questions, which a person can answer.
const NO_QUESTIONS: &str = "-o BatchMode=yes ";
/// Exit status of ssh when it does not reach the host.
const SSH_FAILED: i32 = 255;
/// Exit statuses of shells for a command that is missing or cannot be executed.
const NOT_THERE: [i32; 2] = [126, 127];

impl By {
    /// The way that the arguments ask for.
    pub fn of(launch: Option<&str>, slurm: bool, marline: Option<&str>) -> Result<By, String> {
        let words = match launch {
            Some(words) if !words.contains("{host}") => {
                return Err(format!(
                    "--launch {words}: {{host}} stands for the host's name"
                ));
            }
            Some(words) => words,
            None if slurm => SRUN,
            None => SSH,
        };
        let marline = match marline {
            Some(path) => path.to_owned(),
            None => tool::own_path()?.to_string_lossy().into_owned(),
        };
        Ok(By {
            words: words.split_whitespace().map(str::to_owned).collect(),
            marline,
        })
    }

    /// The command that starts the agent of a host.
    pub fn command(&self, host: &str) -> Command {
        let words = self.words.iter().map(|word| word.replace("{host}", host));
        let mut words = words.chain([self.marline(), "doctor".into(), "--agent".into()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }

    /// The path of the command; ssh hands it to a shell.
    fn marline(&self) -> String {
        match self.program() {
            "ssh" => tool::quote(&self.marline),
            _ => self.marline.clone(),
        }
    }

    fn program(&self) -> &str {
        self.words.first().map_or("", |word| word)
    }

    /// The finding for a host whose agent gave no answer.
    pub fn failed(&self, host: &str, failure: &Failure) -> Finding {
        let (marline, program) = (&self.marline, self.program());
        let by = format!("{} true", self.words.join(" ").replace("{host}", host));
        let by = by.replace(NO_QUESTIONS, "");
        let last = |said: &str| said.lines().last().unwrap_or_default().trim().to_owned();
        let finding = match failure {
            Failure::NotStarted(why) => {
                Finding::broken(Code::DoctorFailed, format!("{program} cannot be started"))
                    .because(why.clone())
            }
            Failure::Ended(_, said) if said.contains("unexpected argument") => {
                Finding::broken(Code::VersionsDiffer, "marline there is of another version")
                    .because(format!("{marline} knows no `doctor --agent`"))
                    .mend("install the same version on all hosts")
            }
            Failure::Ended(Some(status), said) if is_missing(*status, said) => Finding::broken(
                Code::DoctorFailed,
                format!("marline is not installed at {marline}"),
            )
            .because(last(said))
            .mend("install it there, or name its path: --marline PATH"),
            Failure::Ended(Some(SSH_FAILED), said) => {
                not_let_in(host, said, &by).unwrap_or_else(|| {
                    let what = format!("cannot be reached by {program}");
                    Finding::broken(Code::DoctorFailed, what)
                        .because(last(said))
                        .mend(by)
                })
            }
            Failure::Ended(status, said) => {
                let status = status.map_or("a signal".to_owned(), |s| format!("status {s}"));
                Finding::broken(
                    Code::DoctorFailed,
                    format!("{program} or the agent ended with {status}"),
                )
                .because(last(said))
                .mend(by)
            }
            Failure::Silent(said) => Finding::broken(Code::DoctorFailed, "gives no answer")
                .because(match &last(said)[..] {
                    "" => format!("{program} has started, but nothing comes back in time"),
                    said => said.to_owned(),
                })
                .mend(by),
            Failure::Other(why) => {
                Finding::broken(Code::VersionsDiffer, "marline there is of another version")
                    .because(format!("its answer is not understood: {why}"))
                    .mend("install the same version on all hosts")
            }
        };
        finding.on(host)
    }
}

/// The finding for a host that ssh reaches, but does not trust or is not trusted by. `by` is the
/// command for a person.
fn not_let_in(host: &str, said: &str, by: &str) -> Option<Finding> {
    let has = |words: &str| said.lines().find(|line| line.contains(words));
    if has("HOST IDENTIFICATION HAS CHANGED").is_some() {
        let forget = has("ssh-keygen -f").map(|line| line.trim().to_owned());
        let forget = forget.unwrap_or_else(|| format!("ssh-keygen -R {host}"));
        let finding = Finding::broken(
            Code::DoctorFailed,
            "ssh gets another host key than the known one",
        )
        .because("the host was installed anew, or another one answers in its place");
        return Some(finding.mend(format!("{forget}    # if the new key is right\n{by}")));
    }
    if has("Host key verification failed").is_some() {
        let finding = Finding::broken(Code::DoctorFailed, "ssh does not know the host's key");
        return Some(finding.mend(format!("{by}    # and compare the fingerprint")));
    }
    let refused = has("Permission denied (")?;
    let finding =
        Finding::broken(Code::DoctorFailed, "the host refuses the login").because(refused.trim());
    Some(finding.mend(format!("ssh-copy-id {host}")))
}

/// Returns whether a launching program ended since the command is missing.
fn is_missing(status: i32, said: &str) -> bool {
    NOT_THERE.contains(&status)
        || status != SSH_FAILED && said.contains("No such file or directory")
}

/// The hosts of this Slurm job.
pub fn slurm_hosts() -> Result<Vec<String>, String> {
    let list = std::env::var("SLURM_JOB_NODELIST").map_err(|_| {
        "--slurm: there is no SLURM_JOB_NODELIST; run it in an allocation (`salloc -N8`), or name \
         the hosts (--hosts)"
            .to_owned()
    })?;
    let words = ["show", "hostnames", &list];
    let said = tool::run_through(Command::new("scontrol"), &words, "")?;
    let names: Vec<String> = said.split_whitespace().map(str::to_owned).collect();
    match names.is_empty() {
        true => Err(format!("`scontrol show hostnames {list}` names no host")),
        false => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::text;
    use super::*;

    fn by(launch: Option<&str>, slurm: bool) -> By {
        By::of(launch, slurm, Some("/opt/my marline")).unwrap()
    }

    fn line(by: &By) -> String {
        let command = by.command("n7");
        let words = command.get_args().map(|word| word.to_string_lossy());
        let program = command.get_program().to_string_lossy();
        std::iter::once(program)
            .chain(words)
            .collect::<Vec<_>>()
            .join("|")
    }

    #[test]
    fn the_command_is_handed_to_each_program_in_its_way() {
        let ssh = line(&by(None, false));
        assert!(ssh.starts_with("ssh|-o|BatchMode=yes|"), "{ssh}");
        assert!(
            ssh.ends_with("|n7|'/opt/my marline'|doctor|--agent"),
            "{ssh}"
        );
        let srun = line(&by(None, true));
        assert!(
            srun.contains("--nodelist=n7|/opt/my marline|doctor"),
            "{srun}"
        );
        let own = line(&by(Some("ip netns exec {host}"), false));
        assert_eq!(own, "ip|netns|exec|n7|/opt/my marline|doctor|--agent");
        assert!(By::of(Some("rsh"), false, None).is_err());
    }

    #[test]
    fn each_failure_has_a_name() {
        let by = by(None, false);
        let said = |failure| text(&[by.failed("n7", &failure)]).replace("\n  ", " ");
        let ended = |status, words: &str| said(Failure::Ended(Some(status), words.to_owned()));
        let away = ended(
            255,
            "banner\nssh: connect to host n7 port 22: No route to host",
        );
        assert!(
            away.contains("n7: cannot be reached by ssh: ssh: connect"),
            "{away}"
        );
        assert!(away.contains("n7 true"), "{away}");
        let missing = ended(127, "sh: 1: /opt/my marline: not found");
        assert!(
            missing.contains("n7: marline is not installed at /opt/my marline"),
            "{missing}"
        );
        let old = ended(125, "error: unexpected argument '--agent' found");
        assert!(old.contains("of another version"), "{old}");
        let missing = ended(2, "slurmstepd: execve(): /opt/x: No such file or directory");
        assert!(missing.contains("not installed"), "{missing}");
        assert!(ended(9, "killed").contains("ended with status 9: killed"));
        assert!(said(Failure::Silent(String::new())).contains("gives no answer"));
        assert!(said(Failure::Other("x".into())).contains("another version"));
        assert!(said(Failure::NotStarted("no ssh".into())).contains("no ssh"));
    }

    #[test]
    fn hosts_that_ssh_does_not_enter_are_named() {
        let said = |words: &str| {
            let failure = Failure::Ended(Some(SSH_FAILED), words.to_owned());
            text(&[by(None, false).failed("n7", &failure)]).replace("\n  ", " ")
        };
        let by_hand = "ssh -o ConnectTimeout=5 n7 true";
        let unknown = said("Host key verification failed.");
        assert!(
            unknown.contains("ssh does not know the host's key"),
            "{unknown}"
        );
        assert!(unknown.contains(by_hand), "{unknown}");
        let forget = "ssh-keygen -f \"/k\" -R \"n7\"";
        let changed = said(&format!(
            "@  WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!  @\n  remove with:\n  {forget}\n\
             Host key verification failed."
        ));
        for words in ["another host key than the known", forget, by_hand] {
            assert!(changed.contains(words), "{changed}");
        }
        let refused = said("root@n7: Permission denied (publickey).");
        assert!(
            refused.contains("n7: the host refuses the login: root@n7: Permission"),
            "{refused}"
        );
        assert!(refused.contains("ssh-copy-id n7"), "{refused}");
    }
}
