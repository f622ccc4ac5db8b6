//! The users to whom the service lends, and how much.

use std::collections::HashMap;
use std::ops::RangeInclusive;

/// Root's user.
const ROOT: u32 = 0;
/// Most users with connections at one time.
const USERS_MAX: usize = 4_096;

/// Rules for all users, and each user's number of connections.
pub(super) struct Rules {
    own: u32,
    groups: Vec<(u32, String)>,
    sockets_max: usize,
    ports: RangeInclusive<u16>,
    open: HashMap<u32, usize>,
}

impl Rules {
    /// Rules of a service that runs as user `own`. Members of the groups may use it. Each user may
    /// have so many sockets, with ports of the range.
    pub(super) fn new(
        own: u32,
        groups: Vec<(u32, String)>,
        sockets_max: usize,
        ports: RangeInclusive<u16>,
    ) -> Rules {
        Rules {
            own,
            groups,
            sockets_max,
            ports,
            open: HashMap::new(),
        }
    }

    /// Counts a connection of a user with these groups; the error is a refusal.
    pub(super) fn admit(&mut self, user: u32, groups: &[u32]) -> Result<(), String> {
        let member = |(number, _): &(u32, String)| groups.contains(number);
        if user != ROOT && user != self.own && !self.groups.iter().any(member) {
            return Err(self.condition());
        }
        if self.open.len() >= USERS_MAX && !self.open.contains_key(&user) {
            return Err("too many users have sockets".to_owned());
        }
        let open = self.open.entry(user).or_default();
        if *open >= self.sockets_max {
            return Err(format!("{} sockets are the limit", self.sockets_max));
        }
        *open += 1;
        Ok(())
    }

    /// A connection of a user has ended.
    pub(super) fn leave(&mut self, user: u32) {
        if let Some(open) = self.open.get_mut(&user) {
            *open = open.saturating_sub(1);
            if *open == 0 {
                self.open.remove(&user);
            }
        }
    }

    /// Returns whether a port may be lent; the error is a refusal.
    pub(super) fn allow(&self, port: u16) -> Result<(), String> {
        let (least, most) = self.ports.clone().into_inner();
        match self.ports.contains(&port) {
            true => Ok(()),
            false => Err(format!(
                "port {port} is not lent, but {least} to {most} are \
                 (FI_MARLINE_PORTS={least}-{most})"
            )),
        }
    }

    fn condition(&self) -> String {
        let names: Vec<&str> = self.groups.iter().map(|(_, name)| name.as_str()).collect();
        match names[..] {
            [] => "no group may use it (--group)".to_owned(),
            [name] => format!("only the group {name} may use it"),
            _ => format!("only the groups {} may use it", names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let groups = vec![(50, "hpc".to_owned()), (51, "staff".to_owned())];
        Rules::new(900, groups, 2, 20_000..=20_100)
    }

    #[test]
    fn root_the_own_user_and_members_are_admitted() {
        for (user, groups) in [(0, &[][..]), (900, &[]), (1_000, &[7, 51]), (1_001, &[50])] {
            assert_eq!(rules().admit(user, groups), Ok(()), "{user}");
        }
        let why = rules().admit(1_000, &[7]).unwrap_err();
        assert_eq!(why, "only the groups hpc, staff may use it");
        let mut none = Rules::new(0, vec![], 2, 1..=9);
        assert!(none.admit(1_000, &[0]).unwrap_err().contains("--group"));
    }

    #[test]
    fn each_user_has_a_limit() {
        let mut rules = rules();
        for _ in 0..2 {
            rules.admit(1_000, &[50]).unwrap();
            rules.admit(0, &[]).unwrap();
        }
        let why = rules.admit(1_000, &[50]).unwrap_err();
        assert!(why.contains("2 sockets are the limit"), "{why}");
        rules.leave(1_000);
        rules.admit(1_000, &[50]).unwrap();
        rules.leave(77);
    }

    #[test]
    fn ports_beyond_the_range_are_not_lent() {
        assert_eq!(rules().allow(20_000), Ok(()));
        assert_eq!(rules().allow(20_100), Ok(()));
        let why = rules().allow(53).unwrap_err();
        assert!(
            why.contains("port 53") && why.contains("FI_MARLINE_PORTS=20000-20100"),
            "{why}"
        );
    }
}
