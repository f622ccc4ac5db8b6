//! Codes of events, the same as of the warnings about them.

use super::events::{Event, Kind, Reason};
use super::outages::Outage;
use marline_codes::Code;

impl Kind {
    /// The code of events of this kind that no reason tells apart.
    pub(crate) fn code(self) -> Code {
        match self {
            Kind::Unknown => Code::VersionsDiffer,
            Kind::PathUp | Kind::PathDown | Kind::Resumed | Kind::StandbyCarries => Code::PathDown,
            Kind::PathSuspect | Kind::PathCleared | Kind::PathRerouted => Code::PathSuspect,
            Kind::PathIsolated => Code::Corrupt,
            Kind::PathShrank => Code::PathShrank,
            Kind::PeerDead => Code::PeerDead,
            Kind::PeerAwaited => Code::PeerAwaited,
            Kind::RailDown | Kind::RailUp => Code::RailDown,
            Kind::RailMoved | Kind::RailRenamed => Code::RailMoved,
            Kind::RailAwaited | Kind::RailCame => Code::RailAwaited,
            Kind::RailBarred => Code::Blocked,
        }
    }
}

impl Reason {
    /// The code of a peer that was given up for this reason.
    pub fn code_of_peer(self) -> Code {
        match self {
            Reason::Settings => Code::SettingsDiffer,
            Reason::NoCommonRail => Code::NoCommonRail,
            Reason::Versions => Code::VersionsDiffer,
            _ => Code::PeerDead,
        }
    }
}

impl Event {
    /// The code of the event.
    pub fn code(&self) -> Code {
        match self.kind {
            Kind::PeerDead => self.reason.code_of_peer(),
            kind => kind.code(),
        }
    }
}

impl Outage {
    /// The code of the outage.
    pub fn code(&self) -> Code {
        match (self.corrupt, self.certain) {
            (true, _) => Code::Corrupt,
            (false, true) => Code::RailDown,
            (false, false) => Code::PathDown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_peer_has_the_code_of_the_reason() {
        let code = |reason| {
            let kind = Kind::PeerDead;
            #[rustfmt::skip]
            let event = Event { kind, reason, ..Event::default() };
            event.code()
        };
        assert_eq!(code(Reason::Silent), Code::PeerDead);
        assert_eq!(code(Reason::Settings), Code::SettingsDiffer);
        assert_eq!(code(Reason::Versions), Code::VersionsDiffer);
        assert_eq!(code(Reason::NoCommonRail), Code::NoCommonRail);
    }
}
