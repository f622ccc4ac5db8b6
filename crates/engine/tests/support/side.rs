//! An engine with one endpoint over real sockets.

use marline_engine::settings::Settings;
use marline_engine::{AvId, CqId, Engine, EpId, LogSink};

pub struct Side {
    pub engine: Engine,
    pub cq: CqId,
    pub ep: EpId,
    pub av: AvId,
}

/// Opens an engine with these settings, by name.
pub fn side(settings: &[(&str, &str)], sink: LogSink) -> Side {
    let lookup = |name: &str| {
        let given = settings.iter().find(|(n, _)| *n == name);
        given.map(|(_, v)| (*v).to_owned())
    };
    let settings = Settings::from_lookup(lookup).unwrap();
    let engine = Engine::open(settings, sink).unwrap();
    let (cq, av) = (engine.cq_open(), engine.av_open());
    let ep = engine.ep_open().unwrap();
    engine.ep_bind_av(ep, av);
    engine.ep_bind_tx_cq(ep, cq);
    engine.ep_bind_rx_cq(ep, cq);
    engine.ep_enable(ep).unwrap();
    Side { engine, cq, ep, av }
}
