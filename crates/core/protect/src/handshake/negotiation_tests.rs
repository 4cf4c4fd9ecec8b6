use super::*;

fn capable(version: u8) -> MpCapable {
    MpCapable {
        version,
        flags: CapableFlags(CapableFlags::HMAC_SHA256),
        sender_key: (version < 2).then_some([7; 8]),
        receiver_key: None,
        data_length: None,
        checksum: None,
    }
}

/// Returns the content of an option as the receiver's parser returns it.
fn contents(option: &[u8]) -> Option<Eno<'_>> {
    match option {
        [] => None,
        [kind, length, contents @ ..] => {
            assert_eq!((*kind, usize::from(*length)), (69, option.len()));
            Some(Eno { contents })
        }
        [_] => panic!("an option has two bytes"),
    }
}

const TCPCRYPT: &[Tep] = &[Tep::TcpcryptCurve25519, Tep::TcpcryptP256];

#[test]
fn offers_and_answers_have_their_known_bytes() {
    assert_eq!(&offer_eno(&[Tep::TcpcryptCurve25519])[..], [69, 3, 0x23]);
    assert_eq!(
        &offer_eno(&Tep::ALL)[..],
        [69, 6, 0x23, 0x21, 0xa0, 0x01],
        "data last, whatever the preference"
    );
    assert!(offer_eno(&[]).is_empty());
    assert_eq!(&answer_eno(Tep::TcpcryptCurve25519)[..], [69, 4, 0x01, 0x23]);
    assert_eq!(&answer_eno(Tep::Tls13)[..], [69, 5, 0x01, 0xa0, 0x01]);
}

#[test]
fn two_hosts_agree_on_what_the_listener_likes_best() {
    for ours in [&[Tep::Tls13, Tep::TcpcryptP256][..], &[Tep::TcpcryptP256, Tep::Tls13], TCPCRYPT] {
        let offer = offer_eno(&Tep::ALL);
        let verdict = judge_offer(Policy::Require, ours, Some(&capable(2)), contents(&offer));
        assert_eq!(verdict, Verdict::Sealed(ours[0]));
        let answer = answer_eno(ours[0]);
        let verdict = judge_answer(Policy::Require, &Tep::ALL, Some(&capable(2)), contents(&answer));
        assert_eq!(verdict, Verdict::Sealed(ours[0]));
    }
    assert_eq!(judge_ack(Some(&capable(2)), contents(&ACK_ENO)), Ok(()));
    assert_eq!(judge_ack(Some(&capable(2)), None), Err(Refusal::AckWithoutEno));
    assert_eq!(judge_ack(None, contents(&ACK_ENO)), Err(Refusal::CapableMissing));
}

#[test]
fn a_peer_without_encryption_is_refused_or_said() {
    for (capable, refusal, otherwise) in [
        (None, Refusal::PlainTcp, Verdict::Plain),
        (Some(capable(1)), Refusal::OldVersion(1), Verdict::Multipath),
    ] {
        let judge = |policy| judge_answer(policy, &Tep::ALL, capable.as_ref(), None);
        assert_eq!(judge(Policy::Require), Verdict::Refuse(refusal));
        assert_eq!(judge(Policy::Prefer), otherwise);
        let judge = |policy| judge_offer(policy, &Tep::ALL, capable.as_ref(), None);
        assert_eq!(judge(Policy::Require), Verdict::Refuse(refusal));
        assert_eq!(judge(Policy::Prefer), otherwise);
        assert_eq!(judge(Policy::Off), otherwise);
    }
}

/// Each middlebox on the answer's path, under both policies: a partly sealed answer never steps down.
#[test]
fn an_altered_answer_is_refused_under_any_policy() {
    let good = answer_eno(Tep::Tls13);
    let no_role = [69, 4, 0xa0, 0x01];
    let unknown = [69, 4, 0x01, 0x24];
    let cut = [69, 4, 0x01, 0x80];
    let mut without_hash = capable(2);
    without_hash.flags = CapableFlags(0);
    let mut with_key = capable(2);
    with_key.sender_key = Some([1; 8]);
    let cases: [(Option<MpCapable>, &[u8], Refusal); 9] = [
        (Some(capable(2)), &[], Refusal::EnoMissing),
        (None, &good, Refusal::CapableMissing),
        (Some(capable(1)), &good, Refusal::VersionAltered(1)),
        (Some(without_hash), &good, Refusal::CapableAltered),
        (Some(with_key), &good, Refusal::CapableAltered),
        (Some(capable(2)), &no_role, Refusal::SameRole),
        (Some(capable(2)), &unknown, Refusal::NoCommonTep),
        (Some(capable(2)), &cut, Refusal::EnoMalformed),
        (Some(capable(2)), &ACK_ENO, Refusal::SameRole),
    ];
    for (capable, eno, refusal) in cases {
        for policy in [Policy::Require, Policy::Prefer] {
            let verdict = judge_answer(policy, &[Tep::Tls13], capable.as_ref(), contents(eno));
            assert_eq!(verdict, Verdict::Refuse(refusal), "{policy:?}");
        }
        assert!(!refusal.to_string().is_empty());
    }
    let unasked = judge_answer(Policy::Off, &[], Some(&capable(2)), contents(&good));
    assert_eq!(unasked, Verdict::Refuse(Refusal::NotOffered));
    let other = judge_answer(Policy::Require, TCPCRYPT, Some(&capable(2)), contents(&good));
    assert_eq!(other, Verdict::Refuse(Refusal::NoCommonTep));
}

#[test]
fn an_offer_that_cannot_be_met_steps_down_only_where_that_is_preferred() {
    let unknown = [69, 3, 0x24];
    let as_b = [69, 4, 0x01, 0x23];
    for (eno, refusal) in [
        (&unknown[..], Refusal::NoCommonTep),
        (&as_b[..], Refusal::SameRole),
        (&ACK_ENO[..], Refusal::NoCommonTep),
        (&[69, 4, 0x80, 0x23][..], Refusal::EnoMalformed),
    ] {
        let judge = |policy| judge_offer(policy, &Tep::ALL, Some(&capable(2)), contents(eno));
        assert_eq!(judge(Policy::Require), Verdict::Refuse(refusal));
        assert_eq!(judge(Policy::Prefer), Verdict::Multipath);
    }
    let offer = offer_eno(&Tep::ALL);
    assert_eq!(judge_offer(Policy::Off, &Tep::ALL, Some(&capable(2)), contents(&offer)), Verdict::Multipath);
}

#[test]
fn of_several_teps_in_an_answer_the_last_that_was_offered_counts() {
    let answer = [69, 6, 0x01, 0x21, 0x23, 0x24];
    let verdict = judge_answer(Policy::Require, TCPCRYPT, Some(&capable(2)), contents(&answer));
    assert_eq!(verdict, Verdict::Sealed(Tep::TcpcryptCurve25519));
}
