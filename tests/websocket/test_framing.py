"""Frames: what is said arrives, however it is cut up; what is forbidden is refused with the right code."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.client.websocket import framing
from rota.client.websocket.framing import Close, Event, Framing, Ping, Pong, Violation, mask

MESSAGES = st.one_of(st.text(max_size=300), st.binary(max_size=300))


def events(end: Framing, data: bytes, cuts: list[int] | None = None) -> list[Event]:
    out: list[Event] = []
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    for start, stop in itertools.pairwise(places):
        end.feed(data[start:stop])
        while (event := end.take()) is not None:
            out.append(event)
    return out


def frame(first: int, payload: bytes, *, key: bytes = b"\1\2\3\4") -> bytes:
    """As a client sends it."""
    assert len(payload) < 126
    return bytes((first, 0x80 | len(payload))) + key + mask(payload, key)


@given(st.lists(MESSAGES, max_size=8), st.lists(st.integers(0, 10_000), max_size=10), st.booleans())
def test_messages_arrive_as_they_were_sent_however_they_are_cut(
    messages: list[str | bytes], cuts: list[int], from_client: bool
) -> None:
    sender, taker = Framing("client"), Framing("server")
    if not from_client:
        sender, taker = Framing("server"), Framing("client")
    data = b"".join(sender.message(message) for message in messages)
    assert events(taker, data, cuts) == messages


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 65535, 65536, 16384, 16385, 1_000_003])
def test_every_form_of_a_length_is_understood(length: int) -> None:
    message = bytes(range(251)) * (length // 251 + 1)
    assert events(Framing("server"), Framing("client").message(message[:length])) == [message[:length]]


@given(st.binary(max_size=40_000), st.binary(min_size=4, max_size=4))
def test_a_mask_is_taken_off_by_putting_it_on_again(payload: bytes, key: bytes) -> None:
    masked = mask(payload, key)
    assert masked[:9] == bytes(byte ^ key[i % 4] for i, byte in enumerate(payload[:9]))
    assert mask(masked, key) == payload


def test_a_client_masks_each_frame_with_a_key_of_its_own() -> None:
    end = Framing("client")
    assert end.message("the same") != end.message("the same")


@given(st.text(max_size=50), st.lists(st.integers(0, 200), max_size=6))
def test_a_message_in_pieces_is_put_together_and_control_frames_come_between(text: str, cuts: list[int]) -> None:
    payload = text.encode()
    middle = len(payload) // 2
    data = frame(0x01, payload[:middle]) + frame(0x89, b"?") + frame(0x00, b"") + frame(0x80, payload[middle:])
    assert events(Framing("server"), data, cuts) == [Ping(b"?"), text]


def test_control_frames_are_told_apart() -> None:
    end = Framing("server")
    assert events(Framing("client"), end.ping(b"a") + end.pong(b"b")) == [Ping(b"a"), Pong(b"b")]


def test_a_close_has_a_code_and_a_reason_and_is_the_last() -> None:
    end = Framing("server")
    taken = events(Framing("client"), end.close(1001, "gone") + end.message("more"))
    assert taken == [Close(1001, "gone")]


def test_a_close_without_a_code_is_one() -> None:
    assert events(Framing("server"), frame(0x88, b"")) == [Close(framing.NO_CODE, "")]
    assert events(Framing("client"), Framing("server").close(framing.NO_CODE)) == [Close(framing.NO_CODE, "")]


def test_a_reason_that_is_too_long_is_cut_between_characters() -> None:
    (close,) = events(Framing("client"), Framing("server").close(1000, "é" * 100))
    assert close == Close(1000, "é" * 61)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(0xC2, b""), 1002),
        (frame(0xA2, b""), 1002),
        (frame(0x83, b""), 1002),
        (frame(0x8B, b""), 1002),
        (Framing("server").message(b"not masked"), 1002),
        (frame(0x80, b"no beginning"), 1002),
        (frame(0x01, b"one") + frame(0x81, b"two"), 1002),
        (frame(0x09, b"a ping in pieces"), 1002),
        (b"\x89\xfe\x00\x7e", 1002),
        (b"\x82\xfe\x00\x7d", 1002),
        (b"\x82\xff" + struct.pack("!Q", 65535), 1002),
        (b"\x82\xff" + struct.pack("!Q", 1 << 63), 1009),
        (b"\x82\xff" + struct.pack("!Q", framing.MESSAGE_BYTES_MAX + 1), 1009),
        (frame(0x81, b"\xff"), 1007),
        (frame(0x01, b"\xc3") + frame(0x80, b"("), 1007),
        (frame(0x88, b"\x03"), 1002),
        (frame(0x88, struct.pack("!H", 999)), 1002),
        (frame(0x88, struct.pack("!H", 1005)), 1002),
        (frame(0x88, struct.pack("!H", 1006)), 1002),
        (frame(0x88, struct.pack("!H", 2000)), 1002),
        (frame(0x88, struct.pack("!H", 5000)), 1002),
        (frame(0x88, struct.pack("!H", 1000) + b"\xff"), 1007),
    ],
    ids=range(22),
)
def test_what_the_standard_forbids_is_refused(data: bytes, code: int) -> None:
    with pytest.raises(Violation) as refused:
        events(Framing("server"), data)
    assert refused.value.code == code


def test_a_masked_frame_of_a_server_is_refused() -> None:
    with pytest.raises(Violation, match="a server does not"):
        events(Framing("client"), Framing("client").message("x"))


def test_pieces_that_are_too_large_together_are_refused_before_they_have_come() -> None:
    end = Framing("server", message_bytes_max=100)
    assert not events(end, frame(0x02, b"x" * 60))
    with pytest.raises(Violation) as refused:
        events(end, frame(0x80, b"x" * 60)[:2])
    assert refused.value.code == framing.TOO_BIG


def test_a_message_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(ValueError, match="at most 10 bytes"):
        Framing("client", message_bytes_max=10).message("x" * 11)


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_understood_but_never_breaks_it(data: bytes) -> None:
    end = Framing("server", message_bytes_max=100)
    code = framing.NORMAL
    try:
        events(end, data)
    except Violation as violation:
        code = violation.code
    assert framing.may_be_sent(code)
