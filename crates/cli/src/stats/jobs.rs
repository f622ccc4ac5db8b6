//! Groups statistics pages by job: processes that communicated belong to one job.

use marline_engine::stats::rows::{JobPage, ProcessKey};
use marline_engine::stats::summary::Summary;
use std::collections::HashMap;
use std::path::PathBuf;

/// The pages of a job.
pub struct Job {
    /// The pages with their files, by rank if known.
    pub pages: Vec<(PathBuf, JobPage)>,
    /// The summary of all pages.
    pub summary: Summary,
}

impl Job {
    /// The job's number for users: the process number of its first process.
    pub fn id(&self) -> u32 {
        self.pages.first().map_or(0, |(_, page)| page.pid)
    }

    /// The contents of the job's pages.
    pub fn pages(&self) -> impl Iterator<Item = JobPage> + '_ {
        self.pages.iter().map(|(_, page)| page.clone())
    }

    /// The number of events that the pages no longer hold.
    pub fn events_missing(&self) -> u64 {
        let missing = self.pages.iter().map(|(_, page)| page.events.missing);
        missing.fold(0, u64::saturating_add)
    }

    /// True if all its processes have ended.
    pub fn has_ended(&self) -> bool {
        self.pages.iter().all(|(_, page)| is_over(page))
    }

    /// The job's heading.
    pub fn title(&self) -> String {
        let state = if self.has_ended() { ", ended" } else { "" };
        let host = self.pages.first().map_or("?", |(_, page)| &page.host);
        format!("job of process {} on {host}{state}", self.id())
    }
}

/// True if the page's process has ended.
pub fn is_over(page: &JobPage) -> bool {
    page.closed || page.is_left_behind()
}

/// A property that two pages of one job have in common, if both belong to one user.
#[derive(PartialEq, Eq, Hash)]
enum Mark<'a> {
    /// An endpoint: the page's own, or a peer's.
    Endpoint(u64),
    /// The `marline run` that started the process.
    Run(u64),
    /// The process.
    Process(ProcessKey<'a>),
}

fn marks(page: &JobPage) -> Vec<Mark<'_>> {
    let peers = page.peers.iter().map(|peer| peer.endpoint);
    let endpoints = peers
        .chain(page.endpoints.iter().copied())
        .filter(|&endpoint| endpoint != 0);
    let mut marks: Vec<Mark> = endpoints.map(Mark::Endpoint).collect();
    marks.extend(page.run.map(Mark::Run));
    marks.extend(page.process_key().map(Mark::Process));
    marks
}

/// Groups pages by job, in order of the jobs' start.
pub fn group(pages: Vec<(PathBuf, JobPage)>) -> Vec<Job> {
    let mut of: Vec<usize> = (0..pages.len()).collect();
    // A page of another user, which root can read, may claim anything.
    let mut known: HashMap<(u32, Mark), usize> = HashMap::new();
    for (n, (_, page)) in pages.iter().enumerate() {
        for mark in marks(page) {
            let other = *known.entry((page.user, mark)).or_insert(n);
            let (a, b) = (root(&mut of, n), root(&mut of, other));
            of[a] = b;
        }
    }
    let mut jobs: HashMap<usize, Vec<(PathBuf, JobPage)>> = HashMap::new();
    for (n, page) in pages.into_iter().enumerate() {
        jobs.entry(root(&mut of, n)).or_default().push(page);
    }
    let mut jobs: Vec<Job> = jobs.into_values().map(job).collect();
    let began = |job: &Job| job.pages().map(|page| page.opened_unix_ns).min();
    jobs.sort_by_cached_key(|job| (began(job), job.id()));
    jobs
}

fn job(mut pages: Vec<(PathBuf, JobPage)>) -> Job {
    pages.sort_by_cached_key(|(path, page)| (page.rank.unwrap_or(u32::MAX), path.clone()));
    let alone: Vec<JobPage> = pages.iter().map(|(_, page)| page.clone()).collect();
    let summary = Summary::of(&alone);
    Job { pages, summary }
}

/// The representative of page `n`'s group (union-find).
fn root(of: &mut [usize], mut n: usize) -> usize {
    while of[n] != n {
        of[n] = of[of[n]];
        n = of[n];
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use marline_engine::stats::rows::{PathRow, PeerRow};

    fn page(pid: u32, endpoints: &[u64], peers: &[u64]) -> (PathBuf, JobPage) {
        let row = |&endpoint: &u64| PeerRow {
            endpoint,
            paths: vec![PathRow::default()],
            ..PeerRow::default()
        };
        let page = JobPage {
            pid,
            endpoints: endpoints.to_vec(),
            rank: Some(pid),
            opened_unix_ns: u64::from(pid),
            peers: peers.iter().map(row).collect(),
            ..JobPage::default()
        };
        (format!("/d/marline-{pid}.page").into(), page)
    }

    #[test]
    fn processes_in_touch_are_one_job() {
        let all = vec![
            page(7, &[70], &[80]),
            page(1, &[10], &[20]),
            // The only peer of this process left no page here; the same holds for the next page.
            page(4, &[40], &[99]),
            page(2, &[20], &[10]),
            page(5, &[50], &[99]),
            page(3, &[0], &[]),
        ];
        let jobs = group(all);
        let pids = |job: &Job| job.pages().map(|page| page.pid).collect::<Vec<_>>();
        let found: Vec<_> = jobs.iter().map(pids).collect();
        assert_eq!(found, [vec![1, 2], vec![3], vec![4, 5], vec![7]]);
        assert_eq!((jobs[2].id(), jobs[2].summary.processes), (4, 2));
        assert_eq!(jobs[1].summary.processes, 0);
    }

    /// Ranks of Open MPI 5 send by the second of two endpoints, or use one endpoint for windows and
    /// the other for messages.
    #[test]
    fn processes_in_touch_by_any_of_their_endpoints_are_one_job() {
        let all = vec![
            page(1, &[10, 11], &[21]),
            page(2, &[20, 21], &[11]),
            page(3, &[30, 31], &[40, 41]),
            page(4, &[40, 41], &[30, 31]),
        ];
        let jobs = group(all);
        let pids = |job: &Job| job.pages().map(|page| page.pid).collect::<Vec<_>>();
        let found: Vec<_> = jobs.iter().map(pids).collect();
        assert_eq!(found, [vec![1, 2], vec![3, 4]]);
    }

    #[test]
    fn all_that_one_run_started_is_one_job() {
        let mut all = [1, 2, 3]
            .map(|pid| page(pid, &[u64::from(pid)], &[]))
            .to_vec();
        for ((_, page), run) in all.iter_mut().zip([7, 7, 8]) {
            page.run = Some(run);
        }
        assert_eq!(group(all).len(), 2);
    }

    /// Regression: a page that names the endpoints of a job was counted with it, whoever wrote it.
    #[test]
    fn pages_of_another_user_join_no_job() {
        let mut planted = page(9, &[30], &[10, 20]);
        (planted.1.user, planted.1.run) = (1_001, Some(7));
        let mut all = vec![page(1, &[10], &[20]), page(2, &[20], &[10]), planted];
        all[0].1.run = Some(7);
        let jobs = group(all);
        let counts: Vec<_> = jobs.iter().map(|job| job.pages.len()).collect();
        assert_eq!(counts, [2, 1]);
    }

    #[test]
    fn the_domains_of_a_process_are_of_one_job() {
        let all = vec![
            page(1, &[10], &[20]),
            page(1, &[11], &[21]),
            page(2, &[20], &[10]),
            page(2, &[21], &[11]),
        ];
        let [job] = &group(all)[..] else {
            panic!("one job");
        };
        assert_eq!(job.summary.processes, 2);
    }
}
