//! A send to a group reaches its members only: in-process rails that carry group packets.

use marline_rails::{GroupError, GroupLink, Groups, SendOutcome};
use marline_wire::{AckFlags, GroupFrame, GroupHead, GroupPacket, GroupWriter, RailAddr, RailKind};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Maximum of groups per rail.
const JOINED_MAX: usize = 2;

/// The network between the rails: the members of each group, and waiting packets per rail.
#[derive(Default)]
struct Switch {
    members: Vec<(RailAddr, usize)>,
    waiting: Vec<VecDeque<Vec<u8>>>,
}

/// A rail.
struct LoopRail {
    index: usize,
    switch: Rc<RefCell<Switch>>,
    joined: Vec<Option<RailAddr>>,
}

impl LoopRail {
    fn recv(&mut self) -> Vec<Vec<u8>> {
        self.switch.borrow_mut().waiting[self.index]
            .drain(..)
            .collect()
    }
}

impl Groups for LoopRail {
    fn join(&mut self, group: &RailAddr) -> Result<GroupLink, GroupError> {
        if group.kind != RailKind::Loopback {
            return Err(GroupError::NoGroup);
        }
        let free = self.joined.iter().position(Option::is_none);
        let at = match free {
            Some(at) => at,
            None if self.joined.len() == JOINED_MAX => return Err(GroupError::Full),
            None => {
                self.joined.push(None);
                self.joined.len() - 1
            }
        };
        self.joined[at] = Some(*group);
        self.switch.borrow_mut().members.push((*group, self.index));
        Ok(GroupLink(at as u32))
    }

    fn leave(&mut self, group: GroupLink) {
        if let Some(left) = self.joined[group.0 as usize].take() {
            let mut switch = self.switch.borrow_mut();
            switch
                .members
                .retain(|member| *member != (left, self.index));
        }
    }

    fn send_group(&mut self, group: GroupLink, bytes: &[u8], segment: usize) -> SendOutcome {
        let Some(to) = self.joined[group.0 as usize] else {
            return SendOutcome::Sent;
        };
        let switch = &mut *self.switch.borrow_mut();
        let others = switch
            .members
            .iter()
            .filter(|(g, rail)| *g == to && *rail != self.index);
        for (_, rail) in others {
            switch.waiting[*rail].extend(bytes.chunks(segment).map(<[u8]>::to_vec));
        }
        SendOutcome::Sent
    }
}

fn rails(count: usize) -> Vec<LoopRail> {
    let switch = Rc::new(RefCell::new(Switch::default()));
    switch
        .borrow_mut()
        .waiting
        .resize_with(count, VecDeque::new);
    let rail = |index| LoopRail {
        index,
        switch: switch.clone(),
        joined: Vec::new(),
    };
    (0..count).map(rail).collect()
}

fn group(number: u8) -> RailAddr {
    RailAddr::new(RailKind::Loopback, &[0xff, number])
}

#[test]
fn one_send_reaches_all_other_members() {
    let mut rails = rails(5);
    let links: Vec<GroupLink> = (0..4).map(|i| rails[i].join(&group(1)).unwrap()).collect();
    rails[4].join(&group(2)).unwrap();
    assert_eq!(
        rails[0].send_group(links[0], b"abcde", 2),
        SendOutcome::Sent
    );
    let arrived: Vec<usize> = rails.iter_mut().map(|rail| rail.recv().len()).collect();
    assert_eq!(
        arrived,
        [0, 3, 3, 3, 0],
        "not the sender, nor who is in another group"
    );
    rails[2].leave(links[2]);
    rails[1].send_group(links[1], b"f", 1);
    assert_eq!(rails[2].send_group(links[2], b"g", 1), SendOutcome::Sent);
    let arrived: Vec<usize> = rails.iter_mut().map(|rail| rail.recv().len()).collect();
    assert_eq!(
        arrived,
        [1, 0, 0, 1, 0],
        "who left neither hears nor is heard"
    );
}

#[test]
fn a_group_that_cannot_be_joined_says_why() {
    let mut rail = rails(1).remove(0);
    let udp = RailAddr::new(RailKind::Udp4, &[1, 0, 24, 239, 0, 0, 1]);
    assert_eq!(rail.join(&udp), Err(GroupError::NoGroup));
    let first = rail.join(&group(1)).unwrap();
    assert!(rail.join(&group(2)).is_ok());
    assert_eq!(rail.join(&group(3)), Err(GroupError::Full));
    rail.leave(first);
    assert_eq!(rail.join(&group(3)), Ok(first), "numbers are given again");
}

/// A group word is sent once and arrives unchanged at each member.
#[test]
fn members_receive_the_same_word() {
    let mut rails = rails(4);
    let links: Vec<GroupLink> = (0..4).map(|i| rails[i].join(&group(1)).unwrap()).collect();
    let word = GroupFrame::Ack {
        root: 3,
        next: 700,
        flags: AckFlags::of(0),
    };
    let head = GroupHead {
        algorithm: 1,
        group: 5,
        token: 6,
        member: 2,
        src_id: 7,
        src_epoch: 8,
        network: 0,
        flags: GroupHead::FLAG_MULTICAST,
    };
    let mut bytes = [0; 200];
    let mut writer = GroupWriter::new(&mut bytes);
    assert!(writer.push(&word));
    let len = writer.finish(&head, None).unwrap();
    rails[2].send_group(links[2], &bytes[..len], len);
    for member in [0, 1, 3] {
        let packets = rails[member].recv();
        assert_eq!(packets.len(), 1);
        // Not sealed: the head's CRC is 0.
        let packet = GroupPacket::parse(&packets[0], |_| 0).unwrap();
        assert_eq!(packet.head, head);
        assert!(packet.frames().eq([word]));
    }
    assert!(rails[2].recv().is_empty());
}
