//! The Slurm job of a process.

use marline_engine::stats::process::{pid_space, pid_start};
use marline_engine::stats::rows::JobPage;
use std::fs::File;
use std::io::Read;

/// Most bytes of an environment that are read: the kernel's limit is of this order.
const ENVIRONMENT_BYTES_MAX: u64 = 8 << 20;

/// Most digits of a job's number.
const DIGITS_MAX: usize = 10;

/// The number of a process's Slurm job; empty if it has none, or is not visible here.
pub fn job_id(page: &JobPage) -> String {
    let is_here = page.pid_space != 0 && page.pid_space == pid_space();
    if !is_here || pid_start(page.pid) != Some(page.pid_start) {
        return String::new();
    }
    let mut environment = Vec::new();
    let file = File::open(format!("/proc/{}/environ", page.pid));
    let read = file.and_then(|file| {
        let mut file = file.take(ENVIRONMENT_BYTES_MAX);
        file.read_to_end(&mut environment)
    });
    match read {
        Ok(_) => id_in(&environment).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

/// The job's number in an environment. A user may have written anything there.
fn id_in(environment: &[u8]) -> Option<String> {
    let mut words = environment.split(|&byte| byte == 0);
    let id = words.find_map(|word| word.strip_prefix(b"SLURM_JOB_ID="))?;
    let good = (1..=DIGITS_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_digit);
    good.then(|| String::from_utf8_lossy(id).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_numbers() {
        let id = |text: &str| id_in(text.as_bytes());
        assert_eq!(id("A=1\0SLURM_JOB_ID=4711\0B=2\0").as_deref(), Some("4711"));
        for text in [
            "",
            "OLD_SLURM_JOB_ID=1\0",
            "SLURM_JOB_ID=\0",
            "SLURM_JOB_ID=x\"} 1\0",
            "SLURM_JOB_ID=12345678901\0",
        ] {
            assert_eq!(id(text), None, "{text}");
        }
    }

    #[test]
    fn a_process_that_is_not_here_has_none() {
        let page = JobPage {
            pid: std::process::id(),
            ..JobPage::default()
        };
        assert_eq!(job_id(&page), "");
    }
}
