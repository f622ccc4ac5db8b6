//! Opens an engine of a process: rails, configuration and other parts from the settings.

use crate::api::{LogLevel, LogSink};
use crate::config::policy::RailKinds;
use crate::config::profile::Tuned;
use crate::config::settings::Settings;
use crate::core::publish::Publisher;
use crate::core::CoreConfig;
use crate::platform::clock::{Clock, SystemClock};
use crate::platform::event::Event;
use crate::platform::random::random;
use crate::platform::sync::Mutex;
use crate::progress::process::Process;
use crate::progress::shared::{Parts, Shared, Slow};
use crate::progress::sum_workers::SumWorkers;
use crate::progress::waits::Waits;
use marline_auth::{ConnectionKeys, DirectKey, JobKey};
use marline_checksum::Algorithm;
use marline_codes::Code;
use marline_proto::{Config, FRAGMENT_MAX};
use marline_rails::{
    choose_rails, open_rail, with_paths, with_tcp_standby, AnyRail, AnyRx, AnyTx, FaultScript,
    InterfaceWatch, Marks, Ports, Rail, RailChoice, RailRx, RailTx, RailsConfig, ShmConfig,
    TcpConfig, UdpAddr, UdpConfig, VerbsConfig,
};
use marline_wire::{RailKind, BLOCK_BYTES};
use std::net::IpAddr;
use std::sync::Arc;

impl Shared<Process> {
    pub(crate) fn open(settings: &Settings, log: LogSink) -> Result<Shared<Process>, String> {
        settings.check()?;
        let job_key = settings.job_key()?;
        let choices = settings.chosen_rails()?;
        let clock = SystemClock::new();
        let Opened {
            rails,
            halves,
            choices,
        } = open_rails(settings, choices, job_key.as_ref(), &log)?;
        let names: Vec<String> = choices.iter().map(RailChoice::name).collect();
        let mut fds: Vec<i32> = halves.iter().filter_map(RailRx::fd).collect();
        let watched: Vec<_> = choices.iter().map(|c| c.interface.clone()).collect();
        let interfaces = match InterfaceWatch::open(&watched) {
            Ok(watch) => Some(watch),
            Err(e) => {
                (log.0)(
                    LogLevel::Warn(Code::RailUnwatched),
                    &format!("{e}; rails are judged by their traffic alone"),
                );
                None
            }
        };
        fds.extend(interfaces.as_ref().map(InterfaceWatch::fd));
        for rail in settings.checksum_rails.unknown(&names) {
            let text = format!("FI_MARLINE_TEST=checksum_rails: {rail} is no rail of this process");
            (log.0)(LogLevel::Warn(Code::SettingWrong), &text);
        }
        let tuned = Tuned::open(settings, |level, text| (log.0)(level, text));
        let publisher = Publisher::open(settings, &log);
        let parts = Parts {
            rails,
            halves,
            clock: Process(clock),
            watch: (),
            tick_ns: settings.tick_ms * 1_000_000,
            threaded: settings.progress_thread,
            random: random(),
            log,
        };
        let mut shared = Shared::new(core_config(settings, &names, &tuned), parts);
        shared.lock().outages.open(publisher.recorder());
        if let Some(key) = job_key {
            shared.lock().set_job_key(key);
        }
        if !settings.rma {
            shared.lock().refuse_remote();
        }
        let choice = settings.checksum_workers;
        let workers = SumWorkers::new(choice, &mut shared.lock().rails.sums);
        {
            let groups = &mut shared.lock().groups;
            groups.scheme = settings.multicast_scheme.of_all();
            groups.scheme_name = settings.multicast_scheme.name().to_owned();
        }
        shared.slow = Mutex::new(Slow {
            interfaces,
            publisher,
            waits: Waits::new(settings.say_waits),
            workers: workers.filter(|_| settings.progress_thread),
            next_ns: 0,
            publish_ns: 0,
            slice_ns: settings.checksum_slices_ms * 1_000_000,
            sums: true,
        });
        shared.fds = fds;
        shared.sleep_event = Some(Event::new()?);
        Ok(shared)
    }
}

/// A rail that a process with some settings uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailHere {
    /// Name as in settings.
    pub name: String,
    /// IP address; `None` for rails without one.
    pub ip: Option<IpAddr>,
    /// Interface or device.
    pub interface: String,
    /// Largest IP packet in bytes; 0 without an interface.
    pub mtu: usize,
    /// Nominal rate in bytes/s; 0: unknown.
    pub bytes_per_s: u64,
}

/// The rails that settings select on this host at present, without standby rails. Errors are texts
/// for the user.
pub fn rails_here(settings: &Settings) -> Result<Vec<RailHere>, String> {
    let choices = settings.chosen_rails()?.into_iter();
    let here = |choice: RailChoice| RailHere {
        name: choice.name(),
        ip: Some(choice.interface.ip).filter(|ip| !ip.is_unspecified()),
        interface: choice.interface.name,
        mtu: choice.interface.mtu,
        bytes_per_s: choice.interface.bytes_per_s,
    };
    Ok(choices.filter(|c| !c.standby).map(here).collect())
}

/// The opened rails: named sending halves, receiving halves, and their choices.
#[derive(Default)]
struct Opened {
    rails: Vec<(String, AnyTx)>,
    halves: Vec<AnyRx>,
    choices: Vec<RailChoice>,
}

impl Opened {
    fn push(&mut self, choice: RailChoice, rail: AnyRail) {
        let (tx, rx) = rail.split();
        self.rails.push((choice.name(), tx));
        self.halves.push(rx);
        self.choices.push(choice);
    }

    /// The IP port of the last rail.
    fn last_port(&self) -> Option<u16> {
        UdpAddr::port_of(&self.rails.last()?.1.local_addr())
    }

    fn pop(&mut self) {
        self.rails.pop();
        self.halves.pop();
        self.choices.pop();
    }
}

/// Number of ports to try if several are allowed: a rail and its standby rail need one port that is
/// free for both.
const PORT_TRIES: u32 = 16;

impl Settings {
    /// The ports that rails over IP may use.
    pub fn rail_ports(&self) -> Ports {
        match (self.port, self.ports.0) {
            (0, Some((least, most))) => Ports::range(least, most, std::process::id()),
            (port, _) => Ports::one(port),
        }
    }

    /// The rails to use with their standby rails, and shared memory if enabled.
    fn chosen_rails(&self) -> Result<Vec<RailChoice>, String> {
        let named = |why| match self.was_given("rails") {
            true => format!("FI_MARLINE_RAILS={}: {why}", self.rails.join(",")),
            false => why,
        };
        let choices = choose_rails(&self.rails).map_err(named)?;
        let mut choices = with_paths(choices, self.verbs_paths).map_err(named)?;
        if self.shm && !self.rails.iter().any(|name| name == "shm") {
            choices.append(&mut choose_rails(&["shm".to_owned()])?);
        }
        let equal = self.policy.prefers(RailKind::Tcp4);
        Ok(with_tcp_standby(choices, equal))
    }
}

/// Opens the rails; omits standby rails that cannot be opened, and replaces others that need what
/// this host or process lacks (`RailChoice::instead`).
fn open_rails(
    settings: &Settings,
    choices: Vec<RailChoice>,
    key: Option<&JobKey>,
    log: &LogSink,
) -> Result<Opened, String> {
    let config = rails_config(settings, key)?;
    let clock = SystemClock::new();
    let time: marline_rails::Clock = Arc::new(move || clock.now_ns());
    let mut opened = Opened::default();
    let all = choices.clone();
    let mut choices = choices.into_iter().peekable();
    // Fault scripts count the rails that settings name, without standby rails.
    let mut named = 0;
    while let Some(choice) = choices.next() {
        let behind = choices.next_if(|next| next.standby);
        let mut config = config.clone();
        let mut tries = PORT_TRIES;
        loop {
            let found = open_or_instead(named, &choice, (&all, &config), (&time, log))?;
            let Some((used, rail)) = found else { break };
            opened.push(used, rail);
            let Some(behind) = &behind else { break };
            let port = opened.last_port().unwrap_or(0);
            let mut beside = config.clone();
            beside.tcp.standby = true;
            beside.tcp.ports = Ports::one(port);
            let why = match open_rail(ALL_FAULTS, behind, &beside, &time) {
                Ok(rail) => {
                    opened.push(behind.clone(), rail);
                    break;
                }
                Err(why) => why,
            };
            tries -= 1;
            let Some(others) = config.udp.ports.after(port).filter(|_| tries > 0) else {
                let text = format!("no rail stands behind {}: {why}", choice.name());
                (log.0)(LogLevel::Info, &text);
                break;
            };
            opened.pop();
            config.udp.ports = others;
        }
        named += 1;
    }
    Ok(opened)
}

/// Opens the rail number `index`, or the one that is used in its place; `None` if that is one of
/// `all` rails already.
fn open_or_instead(
    index: u8,
    choice: &RailChoice,
    (all, config): (&[RailChoice], &RailsConfig),
    (time, log): (&marline_rails::Clock, &LogSink),
) -> Result<Option<(RailChoice, AnyRail)>, String> {
    let why = match open_rail(index, choice, config, time) {
        Ok(rail) => return Ok(Some((choice.clone(), rail))),
        Err(why) => why,
    };
    let Some(udp) = choice.instead() else {
        return Err(why);
    };
    let warn = |instead: &str| {
        let text = format!("there is no rail {}: {why}; {instead}", choice.name());
        (log.0)(LogLevel::Warn(Code::RailInstead), &text);
    };
    if all.iter().any(|other| other.is_same(&udp)) {
        warn("the UDP rail beside it carries all");
        return Ok(None);
    }
    let rail = open_rail(index, &udp, config, time)?;
    warn("it is a UDP rail");
    Ok(Some((udp, rail)))
}

/// Number of a rail to which only fault scripts for all rails apply.
const ALL_FAULTS: u8 = u8::MAX;

fn rails_config(settings: &Settings, key: Option<&JobKey>) -> Result<RailsConfig, String> {
    let keys = key.map(|key| Arc::new(ConnectionKeys::new(key)));
    let faults =
        FaultScript::parse_all(&settings.faults).map_err(|e| format!("FI_MARLINE_FAULTS: {e}"))?;
    let ports = settings.rail_ports();
    let udp = UdpConfig {
        gso: settings.gso,
        gro: settings.gro,
        // A direct write has one checksum for all of its bytes.
        direct: settings.direct && settings.fragment_max_bytes == 0,
        rcvbuf_bytes: settings.receive_buffer_bytes,
        sndbuf_bytes: settings.send_buffer_bytes,
        dscp: settings.dscp,
        ports,
        connect: true,
        cmsg: false,
        share_groups: settings.multicast_share,
        direct_key: key.map(|key| Arc::new(DirectKey::new(key))),
    };
    let shm = ShmConfig {
        one_copy: settings.one_copy,
        keys: keys.clone(),
    };
    let tcp = TcpConfig {
        dscp: settings.dscp,
        user_timeout_ms: u32::try_from(settings.rail_timeout_ms()).unwrap_or(u32::MAX),
        connections_max: settings.tcp_connections,
        ports,
        keys: keys.clone(),
        ..TcpConfig::default()
    };
    let verbs = VerbsConfig {
        connections_max: settings.verbs_connections,
        datagrams_first: settings.verbs_datagrams,
        staged: settings.verbs_staged,
        retry_ms: match settings.native.has(RailKinds::RELIABLE_CONNECTIONS) {
            true => u32::try_from(settings.rail_timeout_ms()).unwrap_or(u32::MAX),
            false => 0,
        },
        keys,
        marks: Marks {
            traffic_class: settings.verbs_traffic_class,
            service_level: settings.verbs_service_level,
            gid_index: settings.verbs_gid_index.0,
            partition: settings.verbs_pkey,
        },
    };
    Ok(RailsConfig {
        udp,
        tcp,
        shm,
        verbs,
        xdpd: settings.xdpd.clone().into(),
        faults,
    })
}

/// Builds the configuration from settings and profile; `rails` are the rails' names in settings.
#[allow(clippy::needless_update)] // see `Config::default` below
fn core_config(s: &Settings, rails: &[String], tuned: &Tuned) -> CoreConfig {
    let proto = Config {
        reliable: s.reliability,
        algorithm: tuned.algorithm as u8,
        algorithms: Algorithm::BY_TRUST_UNKEYED,
        seeing_order: Algorithm::SEEING_ORDER,
        eager_max: tuned.eager_max_bytes as u64,
        credit_bytes: s.credit_bytes_per_peer as u64,
        unexpected_bytes: s.unexpected_bytes as u64,
        any_source_fails: s.any_source_fails,
        peer_timeout_ns: s.peer_timeout_ms * 1_000_000,
        rail_timeout_ns: s.rail_timeout_ms() * 1_000_000,
        pto_floor_ns: s.pto_floor_us * 1_000,
        pto_cap_ns: s.pto_cap_ms * 1_000_000,
        ack_delay_ns: s.ack_delay_us * 1_000,
        ack_every: s.ack_every_packets,
        versions: s.versions(),
        policy: s.policy.of_node(),
        rail_algorithm: s.checksum_rails.by_rail(rails),
        native_rails: s.native.of_rails(rails),
        read_rails: match s.verbs_reads {
            true => RailKinds::RELIABLE_CONNECTIONS.of_rails(rails),
            false => 0,
        },
        summed: (
            s.checksum_min_bytes,
            match s.checksum_max_bytes {
                0 => u64::MAX,
                most => most,
            },
        ),
        fragment_max: match s.fragment_max_bytes / BLOCK_BYTES as u32 * BLOCK_BYTES as u32 {
            0 => FRAGMENT_MAX,
            most => most,
        },
        corrupt_limit_ppm: s.corrupt_limit_ppm,
        staged: s.verbs_staged.then_some(tuned.pipeline),
        // The simulator's `Config` has one more field.
        ..Config::default()
    };
    let (log_bytes, mtu) = (s.log_bytes, s.mtu);
    CoreConfig {
        proto,
        log_bytes,
        borrow: s.borrow,
        aggregate_after: s.aggregate_after,
        rpcs: true,
        mtu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rails_are_reported_with_the_setting_that_names_them() {
        let rails = |name: &str| (name == "rails").then(|| "lo,eth77".to_owned());
        let mut settings = Settings::from_lookup(rails).unwrap();
        let said = rails_here(&settings).unwrap_err();
        let start =
            "FI_MARLINE_RAILS=lo,eth77: no interface or address here matches eth77; there is ";
        assert!(said.starts_with(start), "{said}");
        assert!(said.contains("lo (127.0.0.1"), "{said}");
        // Rails of a program's domain name are not in the user's settings.
        settings.replace_rails(vec!["eth77".to_owned()]);
        let said = rails_here(&settings).unwrap_err();
        assert!(
            said.starts_with("no interface or address here matches eth77"),
            "{said}"
        );
    }
}
