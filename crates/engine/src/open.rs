//! Opens an engine of a process: from settings to rails, configuration and what else it is made of.

use crate::api::{LogLevel, LogSink};
use crate::config::profile::Tuned;
use crate::config::settings::{RailsPolicy, Settings};
use crate::core::publish::Publisher;
use crate::platform::clock::{Clock, SystemClock};
use crate::platform::event::Event;
use crate::platform::random::random;
use crate::platform::sync::Mutex;
use crate::progress::process::Process;
use crate::progress::shared::{Parts, Shared, Slow};
use crate::state::core::CoreConfig;
use marline_checksum::Algorithm;
use marline_proto::{Config, RailPolicy, FRAGMENT_MAX};
use marline_rails::{
    choose_rails, open_rail, AnyRx, AnyTx, FaultScript, InterfaceWatch, Rail, RailChoice, RailRx,
    RailsConfig, ShmConfig, TcpConfig, UdpConfig,
};
use marline_wire::GRANULE;
use std::sync::Arc;

impl Shared<Process> {
    pub(crate) fn open(settings: &Settings, log: LogSink) -> Result<Shared<Process>, String> {
        settings.check()?;
        let choices = choose_rails(&settings.rail_names())?;
        let clock = SystemClock::new();
        let (rails, halves) = open_rails(settings, &choices)?;
        let names: Vec<String> = choices.iter().map(RailChoice::name).collect();
        let mut fds: Vec<i32> = halves.iter().filter_map(RailRx::fd).collect();
        let watched: Vec<_> = choices.iter().map(|c| c.interface.clone()).collect();
        let interfaces = match InterfaceWatch::open(&watched) {
            Ok(watch) => Some(watch),
            Err(e) => {
                (log.0)(
                    LogLevel::Warn,
                    &format!("{e}; rails are judged by their traffic alone"),
                );
                None
            }
        };
        fds.extend(interfaces.as_ref().map(InterfaceWatch::fd));
        for rail in settings.checksum_rails.unknown(&names) {
            let text = format!("FI_MARLINE_CHECKSUM_RAILS: {rail} is no rail of this process");
            (log.0)(LogLevel::Warn, &text);
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
        shared.slow = Mutex::new(Slow {
            interfaces,
            publisher,
            next_ns: 0,
            publish_ns: 0,
            slice_ns: settings.checksum_slices_ms * 1_000_000,
            sums: true,
        });
        shared.fds = fds;
        shared.nap_event = Some(Event::new()?);
        Ok(shared)
    }
}

/// Sending halves by name, and receiving halves.
type Opened = (Vec<(String, AnyTx)>, Vec<AnyRx>);

impl Settings {
    /// The names of the rails to use, shared memory with them where that is wanted.
    pub(crate) fn rail_names(&self) -> Vec<String> {
        let mut names = self.rails.clone();
        if self.shm && !names.iter().any(|name| name == "shm") {
            if names.is_empty() {
                names.push("udp".to_owned());
            }
            names.push("shm".to_owned());
        }
        names
    }
}

/// Opens the rails.
fn open_rails(settings: &Settings, choices: &[RailChoice]) -> Result<Opened, String> {
    let faults =
        FaultScript::parse_all(&settings.faults).map_err(|e| format!("FI_MARLINE_FAULTS: {e}"))?;
    let clock = SystemClock::new();
    let time: marline_rails::Clock = Arc::new(move || clock.now_ns());
    let udp = UdpConfig {
        gso: settings.gso,
        gro: settings.gro,
        // All of a direct write is under one sum.
        direct: settings.direct && settings.fragment_max_bytes == 0,
        rcvbuf_bytes: settings.receive_buffer_bytes,
        sndbuf_bytes: settings.send_buffer_bytes,
        port: settings.port,
        connect: true,
        cmsg: false,
    };
    let shm = ShmConfig {
        one_copy: settings.one_copy,
    };
    let tcp = TcpConfig {
        user_timeout_ms: u32::try_from(settings.peer_timeout_ms).unwrap_or(u32::MAX),
        connections_max: settings.tcp_connections,
        ..TcpConfig::default()
    };
    let config = RailsConfig {
        udp,
        tcp,
        shm,
        faults,
    };
    let (mut rails, mut halves) = (Vec::new(), Vec::new());
    for (index, choice) in choices.iter().enumerate() {
        let rail = open_rail(index as u8, choice, &config, &time)?;
        let (tx, rx) = rail.split();
        rails.push((choice.name(), tx));
        halves.push(rx);
    }
    Ok((rails, halves))
}

/// The configuration that settings and profile ask for; `rails` are the names that settings use.
#[allow(clippy::needless_update)] // see below
fn core_config(s: &Settings, rails: &[String], tuned: &Tuned) -> CoreConfig {
    let proto = Config {
        reliable: s.reliability,
        algorithm: tuned.algorithm as u8,
        algorithms: Algorithm::BY_TRUST,
        seeing_order: Algorithm::SEEING_ORDER,
        eager_max: tuned.eager_max_bytes as u64,
        credit_bytes: s.credit_bytes_per_peer as u64,
        unexpected_bytes: s.unexpected_bytes as u64,
        any_source_fails: s.any_source_fails,
        peer_timeout_ns: s.peer_timeout_ms * 1_000_000,
        repair_floor_ns: s.repair_floor_us * 1_000,
        repair_cap_ns: s.repair_cap_ms * 1_000_000,
        ack_delay_ns: s.ack_delay_us * 1_000,
        ack_every: s.ack_every_packets,
        policy: match s.rails_policy {
            RailsPolicy::Stripe => RailPolicy::Stripe,
            RailsPolicy::Standby => RailPolicy::Standby,
        },
        rail_algorithm: s.checksum_rails.by_rail(rails),
        summed: (
            s.checksum_min_bytes,
            match s.checksum_max_bytes {
                0 => u64::MAX,
                most => most,
            },
        ),
        fragment_max: match s.fragment_max_bytes / GRANULE as u32 * GRANULE as u32 {
            0 => FRAGMENT_MAX,
            most => most,
        },
        corrupt_limit_ppm: s.corrupt_limit_ppm,
        // The simulator's builds have one field more.
        ..Config::default()
    };
    let (log_bytes, mtu) = (s.log_bytes, s.mtu);
    CoreConfig {
        proto,
        log_bytes,
        aggregate_after: s.aggregate_after,
        mtu,
    }
}
