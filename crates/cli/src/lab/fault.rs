//! The grammar of `marline lab fault TARGET FAULT [in|out] [port=LO-HI] [for=SECONDS]`, and active
//! faults.

/// The end of `marline lab fault --help`: every fault, each with an example.
pub const HELP: &str = "\
TARGET: RAIL (all hosts) or HOST:RAIL, as in 0, rail1, h0:1, h1:rail0
FAULT:  down              cable out: the host sees the carrier go
        ifdown            the host's interface set down
        up                takes down and ifdown back
        drop=P            each packet is lost with probability P (0.01 or 1%)
        blackhole         every packet is lost, silently
        corrupt=P         one payload byte is changed, unseen by TCP and UDP
                          checksums
        forget            what a host sends on the TCP connections and from the
                          UDP ports that it has now is lost, silently; what is
                          new passes
        mtu=1200          longer IP packets are lost, silently (needs
                          offload=off)
        rate=400mbit      rate limit
        delay=1ms         added delay (needs netem in the kernel)
        offload=off|on    segmentation offload of the rail
        clear             takes everything back
then:   in | out          only that direction, seen from the host
        port=LO-HI        only TCP and UDP packets from or to these ports
        for=SECONDS       drop, blackhole, corrupt, forget, mtu: begins by
                          itself at the next full second but one of the clock,
                          and ends by itself; says when

Examples:
  marline lab fault h0:1 down              pull the cable of h0's rail1
  marline lab fault h0:1 up                put it back
  marline lab fault h1:0 ifdown            as `ip link set rail0 down` on h1
  marline lab fault 0 drop=1%              on rail0 of every host
  marline lab fault 0 blackhole for=3      silence for three seconds
  marline lab fault h1:1 blackhole in      h1 hears nothing and is heard
  marline lab fault 0 corrupt=0.002        two packets in a thousand
  marline lab fault 0 forget               a firewall that restarts
  marline lab fault 0 mtu=1200             a switch with a smaller MTU
  marline lab fault h0:0 rate=400mbit out  slow only from h0
  marline lab fault 1 delay=1ms            a longer way
  marline lab fault 0 offload=off          every packet meets faults alone
  marline lab fault 0 drop=5% port=5000-5999
  marline lab fault 0 clear                rail0 is healthy again";

/// Direction as seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dir {
    /// Packets that arrive at the host.
    In,
    /// Packets that leave the host.
    Out,
}

impl Dir {
    /// The grammar's word.
    pub fn word(self) -> &'static str {
        match self {
            Dir::In => "in",
            Dir::Out => "out",
        }
    }
}

/// A fault on one direction of one host's rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// The cable is unplugged: the host sees the carrier go.
    Down,
    /// The host's interface is set down.
    IfDown,
    /// Lost packets per million.
    Drop(u32),
    /// All packets are lost without an error.
    Blackhole,
    /// Packets per million with one corrupted payload byte.
    Corrupt(u32),
    /// Packets of the connections and source ports that the host had at the time of the order are
    /// lost. The number counts repeated orders.
    Forget(u32),
    /// IP packets above this many bytes are lost without an error.
    Mtu(u32),
    /// A rate in bits per second.
    Rate(u64),
    /// A delay in microseconds.
    Delay(u64),
}

impl Effect {
    /// The word for names and the grammar.
    pub fn word(self) -> &'static str {
        match self {
            Effect::Down => "down",
            Effect::IfDown => "ifdown",
            Effect::Drop(_) => "drop",
            Effect::Blackhole => "blackhole",
            Effect::Corrupt(_) => "corrupt",
            Effect::Forget(_) => "forget",
            Effect::Mtu(_) => "mtu",
            Effect::Rate(_) => "rate",
            Effect::Delay(_) => "delay",
        }
    }

    /// The effect's number; 0 for effects without one.
    fn value(self) -> u64 {
        match self {
            Effect::Down | Effect::IfDown | Effect::Blackhole => 0,
            Effect::Drop(n) | Effect::Corrupt(n) | Effect::Forget(n) | Effect::Mtu(n) => n.into(),
            Effect::Rate(v) | Effect::Delay(v) => v,
        }
    }

    fn from_parts(word: &str, value: u64) -> Option<Effect> {
        Some(match word {
            "down" => Effect::Down,
            "ifdown" => Effect::IfDown,
            "drop" => Effect::Drop(value.try_into().ok()?),
            "blackhole" => Effect::Blackhole,
            "corrupt" => Effect::Corrupt(value.try_into().ok()?),
            "forget" => Effect::Forget(value.try_into().ok()?),
            "mtu" => Effect::Mtu(value.try_into().ok()?),
            "rate" => Effect::Rate(value),
            "delay" => Effect::Delay(value),
            _ => return None,
        })
    }

    /// True for effects on the link as a whole, not on one direction.
    pub fn is_link(self) -> bool {
        matches!(self, Effect::Down | Effect::IfDown)
    }

    /// True if a rule judges each packet separately.
    pub fn by_packet(self) -> bool {
        matches!(
            self,
            Effect::Drop(_)
                | Effect::Blackhole
                | Effect::Corrupt(_)
                | Effect::Forget(_)
                | Effect::Mtu(_)
        )
    }

    /// Describes the fault to users.
    pub fn describe(self) -> String {
        match self {
            Effect::Drop(ppm) | Effect::Corrupt(ppm) => {
                format!("{}={}%", self.word(), f64::from(ppm) / 1e4)
            }
            Effect::Rate(bps) => format!("rate={}mbit", bps as f64 / 1e6),
            Effect::Delay(us) => format!("delay={us}us"),
            Effect::Mtu(bytes) => format!("mtu={bytes}"),
            _ => self.word().to_owned(),
        }
    }
}

/// An inclusive range of ports, matched against source and destination.
pub type Ports = Option<(u16, u16)>;

/// The active time of a fault in UNIX seconds: first inclusive, last exclusive.
pub type Span = Option<(u64, u64)>;

/// Longest duration of a fault in seconds.
const SPAN_MAX_S: u64 = 3_600;

/// An active fault on one direction of one host's rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Active {
    /// Host number.
    pub host: usize,
    /// Rail number.
    pub rail: usize,
    /// Direction; `Out` for effects on the link.
    pub dir: Dir,
    /// The fault.
    pub effect: Effect,
    /// Restricts the fault to packets with these ports.
    pub ports: Ports,
    /// Restricts the fault to this time.
    pub span: Span,
}

impl Active {
    /// The fault as one line of the state file.
    pub fn to_line(&self) -> String {
        let ports = self
            .ports
            .map_or("-".to_owned(), |(lo, hi)| format!("{lo}-{hi}"));
        let span = self
            .span
            .map_or("-".to_owned(), |(from, until)| format!("{from}-{until}"));
        let (word, value) = (self.effect.word(), self.effect.value());
        format!(
            "{} {} {} {word} {value} {ports} {span}",
            self.host,
            self.rail,
            self.dir.word()
        )
    }

    /// Parses a line of the state file.
    pub fn from_line(line: &str) -> Option<Active> {
        let words: Vec<&str> = line.split(' ').collect();
        let [host, rail, dir, word, value, ports, span] = words[..] else {
            return None;
        };
        let seconds = |text: &str| {
            let (from, until) = text.split_once('-')?;
            Some((from.parse().ok()?, until.parse().ok()?))
        };
        Some(Active {
            host: host.parse().ok()?,
            rail: rail.parse().ok()?,
            dir: if dir == "in" { Dir::In } else { Dir::Out },
            effect: Effect::from_parts(word, value.parse().ok()?)?,
            ports: if ports == "-" {
                None
            } else {
                Some(parse_ports(ports).ok()?)
            },
            span: if span == "-" {
                None
            } else {
                Some(seconds(span)?)
            },
        })
    }

    /// The name of the counter and the chain; the same for another value of the same fault.
    pub fn id(&self) -> String {
        let ports = self
            .ports
            .map_or(String::new(), |(lo, hi)| format!("_p{lo}_{hi}"));
        let (dir, word) = (self.dir.word(), self.effect.word());
        format!("h{}_rail{}_{dir}_{word}{ports}", self.host, self.rail)
    }

    /// A description for users.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "h{}:rail{} {}",
            self.host,
            self.rail,
            self.effect.describe()
        );
        if !self.effect.is_link() {
            text.push(' ');
            text.push_str(self.dir.word());
        }
        if let Some((lo, hi)) = self.ports {
            text.push_str(&format!(" port={lo}-{hi}"));
        }
        if let Some((from, until)) = self.span {
            text.push_str(&format!(" from={from} until={until}"));
        }
        text
    }
}

/// The action of a `fault` command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sets this fault.
    Set(Effect),
    /// Reverts `down` and `ifdown`.
    Up,
    /// Reverts all faults.
    Clear,
    /// Sets segmentation offload on or off.
    Offload(bool),
}

/// A parsed `FAULT [in|out] [port=LO-HI] [for=SECONDS]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The action.
    pub action: Action,
    /// Restricts the action to this direction.
    pub dir: Option<Dir>,
    /// Restricts the action to these ports.
    pub ports: Ports,
    /// Duration in seconds, from a coming full second.
    pub for_s: Option<u64>,
}

/// Parses the words after the target.
pub fn parse_order(words: &[String]) -> Result<Order, String> {
    let (first, modifiers) = words
        .split_first()
        .ok_or("which fault? See `marline lab fault --help`")?;
    let mut order = Order {
        action: parse_action(first)?,
        dir: None,
        ports: None,
        for_s: None,
    };
    for word in modifiers {
        match word.split_once('=') {
            None if word == "in" => order.dir = Some(Dir::In),
            None if word == "out" => order.dir = Some(Dir::Out),
            Some(("port", range)) => order.ports = Some(parse_ports(range)?),
            Some(("for", seconds)) => order.for_s = Some(parse_seconds(seconds)?),
            _ => {
                return Err(format!(
                    "`{word}`: only `in`, `out`, `port=LO-HI` and `for=SECONDS` may follow"
                ))
            }
        }
    }
    check_order(&order)?;
    Ok(order)
}

fn check_order(order: &Order) -> Result<(), String> {
    let directed = order.dir.is_some() || order.ports.is_some();
    match order.action {
        Action::Set(e) if e.is_link() && directed => Err(format!(
            "`{}` takes the whole link; for one direction or port range use `blackhole`",
            e.word()
        )),
        Action::Set(Effect::Forget(_)) if directed => Err(
            "`forget` is about all that a host sends: it takes neither a direction nor ports"
                .into(),
        ),
        Action::Up | Action::Offload(_) if directed => {
            Err("`up` and `offload` take neither a direction nor ports".into())
        }
        Action::Set(e @ (Effect::Rate(_) | Effect::Delay(_))) if order.ports.is_some() => Err(
            format!("`{}` acts on the whole rail, not on a port range", e.word()),
        ),
        Action::Clear if order.ports.is_some() => Err("`clear` takes no port range".into()),
        Action::Set(e) if e.by_packet() => Ok(()),
        _ if order.for_s.is_some() => Err(
            "`for` goes with `drop`, `blackhole`, `corrupt`, `forget` and `mtu`: the others are \
             states"
                .into(),
        ),
        _ => Ok(()),
    }
}

fn parse_action(word: &str) -> Result<Action, String> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let effect = match (name, value) {
        ("up", None) => return Ok(Action::Up),
        ("clear", None) => return Ok(Action::Clear),
        ("offload", Some("on")) => return Ok(Action::Offload(true)),
        ("offload", Some("off")) => return Ok(Action::Offload(false)),
        ("down", None) => Effect::Down,
        ("ifdown", None) => Effect::IfDown,
        ("blackhole", None) => Effect::Blackhole,
        ("drop", Some(p)) => Effect::Drop(parse_ppm(p)?),
        ("forget", None) => Effect::Forget(1),
        ("corrupt", Some(p)) => Effect::Corrupt(parse_ppm(p)?),
        ("mtu", Some(bytes)) => Effect::Mtu(parse_mtu(bytes)?),
        ("rate", Some(r)) => Effect::Rate(parse_rate(r)?),
        ("delay", Some(d)) => Effect::Delay(parse_delay_us(d)?),
        _ => {
            return Err(format!(
                "`{word}` is no fault; there are down, ifdown, up, drop=P, blackhole, corrupt=P, \
                 forget, mtu=1200, rate=400mbit, delay=1ms, offload=on|off, clear"
            ))
        }
    };
    Ok(Action::Set(effect))
}

/// Parses `0.01` or `1%` to parts per million, between one and a million.
fn parse_ppm(text: &str) -> Result<u32, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 1e4),
        None => (text, 1e6),
    };
    let ppm = number
        .parse::<f64>()
        .map(|v| (v * scale).round())
        .unwrap_or(f64::NAN);
    match (1.0..=1e6).contains(&ppm) {
        true => Ok(ppm as u32),
        false => Err(format!(
            "`{text}`: a probability is 0.000001 to 1, or 0.0001% to 100%"
        )),
    }
}

/// Parses an MTU between IPv4's minimum and its longest packet.
fn parse_mtu(text: &str) -> Result<u32, String> {
    let bytes = text.parse().ok().filter(|n| (68..=65_535).contains(n));
    bytes.ok_or_else(|| format!("`{text}`: an MTU is 68 to 65535 bytes"))
}

fn parse_with_unit(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let scale = units.iter().find(|(name, _)| *name == unit)?.1;
    let value = (number.parse::<f64>().ok()? * scale).round();
    // Above 2^53 a double is not exact; no link or delay is that large.
    (1.0..9e15).contains(&value).then_some(value as u64)
}

fn parse_rate(text: &str) -> Result<u64, String> {
    parse_with_unit(
        text,
        &[("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)],
    )
    .ok_or_else(|| format!("`{text}`: a rate is a number with kbit, mbit or gbit"))
}

fn parse_delay_us(text: &str) -> Result<u64, String> {
    parse_with_unit(text, &[("us", 1.0), ("ms", 1e3), ("s", 1e6)])
        .ok_or_else(|| format!("`{text}`: a delay is a number with us, ms or s"))
}

/// Parses whole seconds: the kernel's rules have no finer unit.
fn parse_seconds(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse();
    number
        .ok()
        .filter(|s| (1..=SPAN_MAX_S).contains(s))
        .ok_or_else(|| format!("`{text}`: a fault lasts 1 to {SPAN_MAX_S} full seconds"))
}

/// Parses `LO-HI` or one port.
fn parse_ports(text: &str) -> Result<(u16, u16), String> {
    let (lo, hi) = text.split_once('-').unwrap_or((text, text));
    match (lo.parse(), hi.parse()) {
        (Ok(lo), Ok(hi)) if lo <= hi => Ok((lo, hi)),
        _ => Err(format!(
            "`{text}`: a port range is LO-HI, each 0 to 65535, LO not above HI"
        )),
    }
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
