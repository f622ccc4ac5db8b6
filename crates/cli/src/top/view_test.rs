//! Tests of order, filter and keys.

use super::*;
use crate::top::data::State;

fn rail(host: &str, state: State, bytes_per_s: f64, lost: u64) -> Rail {
    Rail {
        host: host.to_owned(),
        rail: "rail0".to_owned(),
        state,
        bytes_sent_per_s: bytes_per_s,
        lost,
        worst: vec![Path {
            from: format!("rank 0 on {host}"),
            lost,
            ..Path::default()
        }],
        ..Rail::default()
    }
}

fn snapshot() -> Snapshot {
    let event = |text: &str| EventRow {
        text: text.to_owned(),
        ..EventRow::default()
    };
    Snapshot {
        rails: vec![
            rail("h0", State::Up, 5.0, 2),
            rail("h1", State::Down, 0.0, 1),
            rail("h2", State::Up, 9.0, 0),
        ],
        events: vec![event("rank 0 on h0: up"), event("rank 1 on h1: down")],
        ..Snapshot::default()
    }
}

fn keys(view: &mut View, text: &str) -> Effect {
    let mut effect = Effect::Continue;
    for c in text.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            'v' => KeyCode::Down,
            '^' => KeyCode::Up,
            c => KeyCode::Char(c),
        };
        effect = view.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    effect
}

fn order(view: &View) -> Vec<String> {
    let snapshot = snapshot();
    let rails = view.rails(&snapshot);
    rails.iter().map(|rail| rail.host.clone()).collect()
}

#[test]
fn the_worst_rail_is_first_unless_another_order_is_wanted() {
    let mut view = View::default();
    assert_eq!(order(&view), ["h1", "h0", "h2"]);
    keys(&mut view, "s");
    assert_eq!(
        (view.column, order(&view)),
        (Column::Out, vec!["h2".into(), "h0".into(), "h1".into()])
    );
    keys(&mut view, "r");
    assert_eq!(order(&view), ["h1", "h0", "h2"]);
    keys(&mut view, "rsss");
    assert_eq!(
        (view.column, order(&view)),
        (Column::Lost, vec!["h0".into(), "h1".into(), "h2".into()])
    );
    // After the last column comes the first.
    keys(&mut view, "ssss");
    assert_eq!(
        (view.column, order(&view)),
        (Column::Name, vec!["h0".into(), "h1".into(), "h2".into()])
    );
}

#[test]
fn a_filter_picks_rails_and_events() {
    let mut view = View::default();
    // While a filter is typed, letters are no commands.
    assert_eq!(keys(&mut view, "/q"), Effect::Continue);
    assert_eq!(order(&view), [""; 0]);
    keys(&mut view, "\x1b/H1\n");
    assert_eq!((order(&view), view.typing), (vec!["h1".into()], false));
    let snapshot = snapshot();
    let events = view.events(&snapshot);
    assert_eq!((events.len(), &*events[0].text), (1, "rank 1 on h1: down"));
    keys(&mut view, "\x1b/down\n");
    assert_eq!(order(&view), ["h1"], "states are text, too");
    keys(&mut view, "\x1b");
    assert_eq!(order(&view).len(), 3);
}

#[test]
fn a_chosen_rail_shows_its_own_paths() {
    let (mut view, snapshot) = (View::default(), snapshot());
    let worst = |view: &View| {
        let rails = view.rails(&snapshot);
        let paths = view.worst(&rails).into_iter();
        paths.map(|(_, path)| path.from.clone()).collect::<Vec<_>>()
    };
    let all = ["rank 0 on h0", "rank 0 on h1", "rank 0 on h2"];
    assert_eq!(worst(&view), all, "most losses first");
    keys(&mut view, "vv");
    assert_eq!(worst(&view), ["rank 0 on h0"], "the second row");
    keys(&mut view, "vvvv");
    view.limit(3);
    assert_eq!(worst(&view), ["rank 0 on h2"], "the last row");
    keys(&mut view, "^");
    assert_eq!(view.chosen, Some(1));
    keys(&mut view, "\x1b");
    assert_eq!(worst(&view), all);
    view.chosen = Some(2);
    view.limit(0);
    assert_eq!(view.chosen, None);
}

#[test]
fn keys_freeze_and_quit() {
    let mut view = View::default();
    assert_eq!(keys(&mut view, "f"), Effect::Continue);
    assert!(view.frozen);
    keys(&mut view, " ");
    assert!(!view.frozen);
    assert_eq!(keys(&mut view, "q"), Effect::Quit);
    keys(&mut view, "/");
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(view.key(control_c), Effect::Quit);
}
