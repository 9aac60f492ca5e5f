"""The frame codec. The names of the tests are the rules of the protocol: F of its grammar, E of its escapes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mombroker.stomp.frames import (
    BEFORE_LOGIN,
    BODIES,
    CLIENT,
    MAX_STRANGE,
    SAMPLE,
    SERVER,
    Frame,
    FrameError,
    Limits,
    Parser,
    encode,
)
from mombroker.stomp.headers import V10, V11, V12, block_for, block_of, escape, headers_of, unescape
from mombroker.stomp.requests import CONTROL

VERSIONS = (V10, V11, V12)


def feed(pieces, version, first, limits, commands):
    """The frames that these pieces make, and the fault that ends them, if there is one."""
    parser = Parser(limits, version, commands)
    parser.first = first
    frames = []
    try:
        for piece in pieces:
            parser.feed(piece)
            while (frame := parser.next()) is not None:
                frames.append(frame)
    except FrameError as error:
        return frames, str(error)
    return frames, ""


def splits(data):
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    yield [data[at : at + 3] for at in range(0, len(data), 3)]
    for at in range(1, len(data), max(1, len(data) // 300)):
        yield [data[:at], data[at:]]


def read(data, version=V12, first=False, limits=None, commands=CLIENT):
    """As `feed`, after all splits of the bytes have had the same outcome."""
    limits = limits or Limits()
    frames, fault = feed([data], version, first, limits, commands)
    for pieces in splits(data):
        other, complaint = feed(pieces, version, first, limits, commands)
        assert (other, bool(complaint)) == (frames, bool(fault)), pieces
    return frames, fault


def good(data, version=V12, **how):
    frames, fault = read(data, version, **how)
    assert fault == ""
    return frames


def block(frame):
    """The user's headers."""
    return block_of((name, value) for name, value in frame.headers.items() if name not in CONTROL)


def one(data, version=V12, **how):
    (frame,) = good(data, version, **how)
    return frame


def fault(data, version=V12, **how):
    frames, text = read(data, version, **how)
    assert frames == [] and text
    return text


# -- grammar -------------------------------------------------------------------------------------------------------


LINES = ("receipt:1", "receipt:22", "receipt:", "receipt:a\\cb", "receipt:a b ", "receipt:\u00e9", "receipt:x:y", "x:1")
HEADS = st.lists(st.sampled_from((*LINES, "receipt:\0", "receipt:\r", "destination:/queue/a", "y:\\n")), max_size=4)


@given(heads=st.lists(HEADS, min_size=2, max_size=6), version=st.sampled_from(VERSIONS), carriage=st.booleans())
def test_a_head_that_is_remembered_reads_like_one_that_is_not(heads, version, carriage):
    frames = ["".join(f"{line}\n" for line in ("SEND", *lines, "")).encode() + b"b\0" for lines in heads]
    if carriage:
        frames = [frame.replace(b"\n", b"\r\n") for frame in frames]
    expected, fault = [], ""
    limits = Limits(headers=3)
    for frame in frames:
        if not fault:
            found, fault = feed([frame], version, False, limits, CLIENT)
            expected += found
    assert feed(frames, version, False, limits, CLIENT) == (expected, fault)


@pytest.mark.parametrize("version", VERSIONS)
def test_F1_a_frame_is_a_command_headers_a_blank_line_a_body_and_a_nul_at_every_split(version):
    data = b"SEND\ndestination:/queue/a\nx:1\n\nhello\0ACK\nid:1\n\n\0\nSEND\ndestination:b\ncontent-length:3\n\na\0b\0"
    assert good(data, version) == [
        Frame("SEND", {"destination": "/queue/a", "x": "1"}, b"hello"),
        Frame("ACK", {"id": "1"}, b""),
        Frame("SEND", {"destination": "b", "content-length": "3"}, b"a\0b"),
    ]


def test_F1_a_frame_may_have_no_headers_and_no_body():
    assert one(b"SEND\n\n\0") == Frame("SEND", {}, b"")


@pytest.mark.parametrize("ends", [b"\n", b"\n\n\n", b"\r\n", b"\n\r\n\n", b"\n" * 5000])
def test_F2_line_ends_between_frames_and_before_the_first_are_skipped(ends):
    data = ends + b"BEGIN\ntransaction:t\n\n\0" + ends + b"COMMIT\ntransaction:t\n\n\0" + ends
    assert [frame.command for frame in good(data, V12)] == ["BEGIN", "COMMIT"]
    assert one(ends + b"CONNECT\n\n\0", V10, first=True).command == "CONNECT"


def test_F3_in_1_2_lines_end_with_either_line_end_mixed_within_one_frame():
    data = b"SEND\r\ndestination:/queue/a\nx:1\r\n\r\nb\r\n\0SEND\na:1\r\n\nc\0SEND\r\na:2\n\r\nd\0SEND\r\n\r\ne\0"
    assert good(data) == [
        Frame("SEND", {"destination": "/queue/a", "x": "1"}, b"b\r\n"),
        Frame("SEND", {"a": "1"}, b"c"),
        Frame("SEND", {"a": "2"}, b"d"),
        Frame("SEND", {}, b"e"),
    ]


@pytest.mark.parametrize("version", [V10, V11])
def test_F3_before_1_2_a_carriage_return_is_data_but_on_the_first_frame(version):
    frame = one(b"CONNECT\r\nlogin:ann\r\n\r\n\0", version, first=True)
    assert frame == Frame("CONNECT", {"login": "ann"}, b"")
    assert one(b"SEND\nx:1\r\ny:2\n\n\0", version).headers == {"x": "1\r", "y": "2"}
    assert fault(b"SEND\r\nx:1\r\n\r\n\0", version) == "unknown command 'SEND\\r': a line ends in LF alone here"


def test_F4_commands_and_header_names_are_case_sensitive():
    assert fault(b"send\ndestination:/queue/a\n\n\0") == "unknown command 'send'"
    assert one(b"SEND\nDestination:/queue/a\n\n\0").headers == {"Destination": "/queue/a"}


def test_F5_the_first_colon_splits_name_from_value():
    assert one(b"SEND\nurl:http://h:80/\n\n\0", V10).headers == {"url": "http://h:80/"}
    frame = one(b"SEND\nurl:http://h:80/\nx:1\n\n\0", V12)
    assert frame.headers == {"url": "http://h:80/", "x": "1"}
    assert block(frame) == b"url:http\\c//h\\c80/\nx:1\n"  # for receivers that want colons escaped


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("line", [b"nocolon", b":value", b":", b"", b"\\c"])
def test_F6_a_line_without_a_colon_or_a_name_is_a_fault(version, line):
    data = b"SEND\na:1\nb:2:3\n" + line + b"\nc:4\n\n\0"
    if line == b"":  # then it is the blank line, and the rest is the body
        assert one(data, version).body == b"c:4\n\n"
    else:
        assert "a header is name:value" in fault(data, version)


def test_F6_an_empty_value_is_legal():
    assert one(b"SEND\nx:\ny:1\n\n\0").headers == {"x": "", "y": "1"}


@pytest.mark.parametrize("version", VERSIONS)
def test_F7_headers_are_utf_8(version):
    text = "grün-€-𝄞"
    frame = one(f"SEND\n{text}:{text}\n\n\0".encode(), version)
    assert frame.headers == {text: text}
    assert block(frame) == f"{text}:{text}\n".encode()
    for bad in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\x80"):
        assert fault(b"SEND\nx:" + bad + b"\n\n\0", version) == "headers must be UTF-8"


@pytest.mark.parametrize("version", VERSIONS)
def test_F8_content_length_says_how_many_octets_are_the_body(version):
    frames = good(b"SEND\ncontent-length:4\n\n\0\n\0\n\0\nSEND\ncontent-length:0\n\n\0", version)
    assert [frame.body for frame in frames] == [b"\0\n\0\n", b""]
    for wrong in (b"abcd", b"abc\ndef"):
        assert "no NUL after the body" in fault(b"SEND\ncontent-length:3\n\n" + wrong + b"\0", version)


def test_F2_what_a_server_says_ends_its_line_and_what_a_client_says_need_not():
    for command in (*SERVER, "STOMP", "SEND"):
        assert encode(command, [], b"x").endswith(b"x\0\n" if command in SERVER else b"x\0")


@pytest.mark.parametrize("length", [b" 2", b"2  "])
def test_F8_a_content_length_may_have_blanks_around_it(length):
    assert one(b"SEND\ncontent-length:" + length + b"\n\n\0b\0").body == b"\0b"


@pytest.mark.parametrize("length", ["-1", "abc", "", " ", "3 3", "+3", "0x3", "1e3", "3.0", "٣", "9" * 40, "5000"])
def test_F9_a_bad_content_length_is_a_fault_before_the_body_comes(length):
    head = f"SEND\ndestination:/queue/a\ncontent-length:{length}\n\n".encode()
    text = fault(head, V12, limits=Limits(body=4999))
    assert (
        "content-length must be" in text
        or text == "a body is over 4999 bytes: send less, or raise max_message in [limits]"
    )


def test_F10_without_content_length_the_body_ends_at_the_first_nul():
    assert [frame.body for frame in good(b"SEND\n\na\n\nb\0SEND\n\n\0")] == [b"a\n\nb", b""]


@pytest.mark.parametrize("command", sorted(CLIENT - BODIES - {"CONNECT", "STOMP"}))
def test_F11_only_send_message_and_error_have_bodies(command):
    for body in (b"\nbody\0", b"content-length:4\n\nbody\0"):
        data = command.encode() + b"\nid:1\n" + body
        assert one(data, V10).body == b"body"  # the session does not look at it
        assert fault(data, V11) == fault(data, V12) == f"a {command} frame has no body"
    assert one(command.encode() + b"\ncontent-length:0\n\n\0").body == b""
    assert fault(command.encode() + b"\n\nb") == f"a {command} frame has no body"  # it need not be whole


@pytest.mark.parametrize("command", ["MESSAGE", "ERROR"])
def test_F11_messages_and_errors_have_bodies(command):
    assert one(command.encode() + b"\n\nbody\0", commands=SERVER).body == b"body"


@pytest.mark.parametrize("version", VERSIONS)
def test_F12_of_repeated_headers_the_first_wins(version):
    frame = one(b"SEND\na:1\nb:2\na:3\ndestination:x\ndestination:y\n\n\0", version)
    assert frame.headers == {"a": "1", "b": "2", "destination": "x"}
    assert block(frame) == b"a:1\nb:2\n"


@pytest.mark.parametrize("end", [b"\n\n\0", b"\r\n\r\n\0", b""])
def test_F13_the_limits_hold_while_a_frame_is_read(end):
    def last(lines, **limits):
        return fault(b"SEND\n" + lines + end, limits=Limits(**limits))

    assert (
        last(b"a:1\nb:2\nc:3" if end else b"a:1\nb:2\nc:3\n", headers=2)
        == "a frame has more than 2 headers: put them into the body"
    )
    assert last(b"a:" + b"x" * 10, line=10) == "a header line is over 10 bytes: put it into the body"
    assert last(b"a:123\n" * 6 + b"a:123", head=40) == "the headers of a frame are over 40 bytes: put it into the body"
    if end:
        assert fault(b"SEND\n\n" + b"x" * 11, limits=Limits(body=10)).startswith("a body is over 10 bytes: send less")


@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
def test_F13_what_is_just_within_the_limits_is_read(eol):
    data = eol.join([b"SEND", b"a:1", b"b:2345678", b"", b"0123456789\0"])
    limits = Limits(headers=2, line=9, head=18 + 3 * (len(eol) - 1), body=10)
    assert one(data, limits=limits) == Frame("SEND", {"a": "1", "b": "2345678"}, b"0123456789")
    assert one(b"SEND\ncontent-length:10\n\n0123456789\0", limits=Limits(body=10)).body == b"0123456789"


def test_F13_a_limit_on_lines_counts_bytes_not_characters():
    data = "SEND\na:𝄞𝄞\n\n\0".encode()
    assert one(data, limits=Limits(line=10)).headers == {"a": "𝄞𝄞"}
    assert fault(data, limits=Limits(line=9)) == "a header line is over 9 bytes: put it into the body"


def test_F14_before_a_login_limits_are_small():
    parser = Parser(BEFORE_LOGIN)
    with pytest.raises(FrameError):
        for at in range(100_000):
            parser.feed(b"h%d:1\n" % at if at else b"CONNECT\n")
            parser.next()
            assert parser.waiting < 20_000
    assert one(b"CONNECT\n\n" + b"x" * 1024 + b"\0", V10, first=True, limits=BEFORE_LOGIN)
    assert fault(b"CONNECT\n\n" + b"x" * 1025, V10, first=True, limits=BEFORE_LOGIN)


def test_of_heads_that_never_come_again_few_are_remembered():
    parser = Parser(Limits(), V12)
    parser.first = False

    def known(name):
        parser.feed(encode("SEND", [("destination", "/queue/a"), ("id", name), ("receipt", "r")]))
        frame = parser.next()
        assert frame.headers == {"destination": "/queue/a", "id": name, "receipt": "r"}
        return parser.known is not None

    assert all(known(f"{number}") for number in range(MAX_STRANGE))
    assert sum(known(f"more {number}") for number in range(10 * SAMPLE)) == 10
    for number in range(8 * SAMPLE):
        known("xy"[number % 2])
    assert known("x") and known("y") and known("another"), "some have come again"


@pytest.mark.parametrize("version", VERSIONS)
def test_F15_an_unknown_command_is_a_fault_as_soon_as_it_can_be_none(version):
    for line in (b"FOO", b"SENDS", b"SEN", b"", b"GET / HTTP/1.1", b"MESSAGE", b" SEND", b"\rSEND", b"SEND "):
        assert "unknown command" in fault((line or b"\t") + b"\nx:1\n\n\0", version)
    for start in (b"GE", b"\xff", b"\x16"):
        assert "unknown command" in fault(start, version)
    assert "unknown command" in fault(b"SENDS\n", version)
    assert good(b"UNSUBSCR", version) == []
    assert one(b"STOMP\n\n\0", version).command == "STOMP"


def test_F15_bytes_of_tls_are_named():
    hello = bytes.fromhex("16030100fd010000f90303")
    assert fault(hello, V10, first=True) == "these bytes are TLS: this port takes plain text"


def test_a_missing_blank_line_is_named():
    for data in (b"CONNECT\nlogin:ann\0", b"CONNECT\nlogin:ann\n\0", b"CONNECT\0\n\n\0"):
        assert "NUL" in fault(data, V10, first=True) or "unknown command" in fault(data, V10, first=True)
    assert "a blank line must follow" in fault(b"CONNECT\nlogin:ann\n\0CONNECT\n\n\0", V10, first=True)


def test_a_fault_in_a_login_does_not_repeat_its_headers():
    text = fault(b"CONNECT\nlogin:ann\npasscode secret\n\n\0", V10, first=True)
    assert "secret" not in text


# -- escapes -------------------------------------------------------------------------------------------------------


def test_E1_1_0_has_no_escapes_in_either_direction():
    frame = one(b"SEND\npath:C:\\new\\table\\\n\n\0", V10)
    assert frame.headers == {"path": "C:\\new\\table\\"}
    assert block_for(block(frame), V10) == b"path:C:\\new\\table\\\n"
    assert encode("MESSAGE", [("a", "\\n:")], version=V10) == b"MESSAGE\na:\\n:\n\n\0\n"


def test_E2_1_1_knows_three_escapes_in_names_and_values():
    frame = one(b"SEND\na\\cb:1\\n2\\\\3\\c\n\n\0", V11)
    assert frame.headers == {"a:b": "1\n2\\3:"}
    assert block(frame) == b"a\\cb:1\\n2\\\\3\\c\n"
    assert fault(b"SEND\na:\\r\n\n\0", V11) == "undefined escape \\r in a header: STOMP 1.1 has \\n \\c \\\\"


def test_E3_1_2_knows_one_more_and_no_other():
    assert one(b"SEND\na:1\\r\\n\n\n\0", V12).headers == {"a": "1\r\n"}
    for bad in (b"\\t", b"\\:", b"\\", b"\\\\\\", b"\\N", b"\\0"):
        assert "undefined escape" in fault(b"SEND\na:" + bad + b"\n\n\0", V12)
        assert "undefined escape" in fault(b"SEND\na" + bad + b":1\n\n\0", V12)


@pytest.mark.parametrize("version", VERSIONS)
def test_E4_connect_and_connected_are_never_escaped(version):
    for first in (True, False):
        frame = one(b"CONNECT\npasscode:a:b\\c\\t\\\n\n\0", version, first=first)
        assert frame.headers == {"passcode": "a:b\\c\\t\\"}
    data = encode("CONNECT", [("passcode", "a:b\\c")], version=version)
    assert data == b"CONNECT\npasscode:a:b\\c\n\n\0"
    data = encode("CONNECTED", [("server", "a:b\\c\nd")], version=version)
    assert data == b"CONNECTED\nserver:a:b\\c d\n\n\0\n"
    assert one(data, version, commands=SERVER).headers == {"server": "a:b\\c d"}


def test_E5_a_stored_block_is_encoded_by_the_version_of_each_receiver():
    block = block_of([("a:b", "1\r\n2"), ("c", "\\r")])
    assert block == b"a\\cb:1\\r\\n2\nc:\\\\r\n"
    assert block_for(block, V12) is block
    assert block_for(block, V11) == b"a\\cb:1\r\\n2\nc:\\\\r\n"
    assert block_for(block, V10) == b"a:b:1\r 2\nc:\\r\n"
    plain = block_of([("a", "1"), ("b", "2")])
    assert all(block_for(plain, version) is plain for version in VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
def test_E5_whatever_version_a_sender_speaks_the_block_is_the_same(version):
    frame = one(encode("SEND", [("destination", "q"), ("a", "1:2\\3"), ("b", " ")], b"body", version), version)
    trimmed = "" if version == V10 else " "
    assert block(frame) == f"a:1\\c2\\\\3\nb:{trimmed}\n".encode()
    assert headers_of(block(frame)) == {"a": "1:2\\3", "b": trimmed}


def test_E6_only_1_0_trims_spaces():
    data = b"SEND\nx:  padded \ny:1\n\n\0"
    assert one(data, V10) == Frame("SEND", {"x": "padded", "y": "1"}, b"")
    for version in (V11, V12):
        assert one(data, version).headers == {"x": "  padded ", "y": "1"}
        assert block(one(data, version)) == b"x:  padded \ny:1\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_E7_ids_come_back_byte_for_byte_after_an_escape_round_trip(version):
    value = b"a\\\\b\\c\\n" + {V10: b"", V11: b"\r", V12: b"\\r"}[version] + b"\xf0\x9d\x84\x9e"
    receipt = one(b"SEND\nreceipt:" + value + b"\n\n\0", version).headers["receipt"]
    assert (
        encode("RECEIPT", [("receipt-id", receipt)], version=version) == b"RECEIPT\nreceipt-id:" + value + b"\n\n\0\n"
    )


# -- blocks --------------------------------------------------------------------------------------------------------


def test_the_headers_of_the_protocol_are_not_in_the_block():
    lines = [f"{name}:1" for name in sorted(CONTROL - {"content-length"})] + ["mine:2"]
    assert block(one(("SEND\n" + "\n".join(lines) + "\n\n\0").encode())) == b"mine:2\n"


def test_a_nul_that_came_by_another_way_leaves_as_a_space():
    for version in VERSIONS:
        assert encode("ERROR", [("message", "a\0b")], version=version).count(b"\0") == 1


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@given(TEXT)
def test_what_is_escaped_can_be_read_back(text):
    assert unescape(escape(text, V12), V12) == text
    assert unescape(escape(text, V11), V11) == text
    assert not set("\n\r:") & set(escape(text, V12))
    assert "\n" not in escape(text, V10)


@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=5), st.binary(max_size=50), st.sampled_from([V11, V12]))
def test_a_frame_that_was_encoded_is_read_back(headers, body, version):
    headers["content-length"] = str(len(body))
    frame = one(encode("SEND", headers.items(), body, version), version)
    user = {name: value for name, value in headers.items() if name not in CONTROL}
    assert frame == Frame("SEND", headers, body)
    assert headers_of(block(frame)) == user


# -- any bytes at all ----------------------------------------------------------------------------------------------

ALPHABET = [
    b"SEND", b"MESSAGE", b"CONNECT", b"ACK", b"\n", b"\n\n", b"\r\n", b"\r", b"\0", b":", b"\\", b"\\c", b" ", b"a:1",
    b"destination:/queue/a", b"content-length:3", b"content-length:-1", b"x", b"\xff", b"\xc3\xa4", b"abc", b"\x16\x03",
]  # fmt: skip
SOUP = st.lists(st.sampled_from(ALPHABET) | st.binary(max_size=3), max_size=40).map(b"".join)
SMALL = Limits(headers=4, line=40, head=80, body=30)


@given(SOUP, st.sampled_from(VERSIONS), st.booleans(), st.lists(st.integers(0, 80), max_size=6))
@settings(max_examples=100)
def test_any_bytes_make_the_same_frames_or_a_fault_at_every_split(data, version, first, cuts):
    whole = feed([data], version, first, SMALL, CLIENT)
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[a:b] for a, b in zip(places, places[1:], strict=False) if b > a]
    for split in (pieces, [data[at : at + 1] for at in range(len(data))]):
        frames, text = feed(split, version, first, SMALL, CLIENT)
        assert (frames, bool(text)) == (whole[0], bool(whole[1]))


@given(SOUP, st.sampled_from(VERSIONS))
@settings(max_examples=100)
def test_what_is_kept_of_any_bytes_is_within_the_limits(data, version):
    parser = Parser(SMALL, version)
    try:
        for at in range(len(data)):
            parser.feed(data[at : at + 1])
            while parser.next() is not None:
                pass
            assert parser.waiting <= SMALL.head + SMALL.body
    except FrameError:
        pass


@pytest.mark.parametrize("data", [
    b"SEND\ndestination:/queue/a\n\n" + b"x" * 2_000_000 + b"\0",
    b"SEND\ndestination:/queue/a\ncontent-length:2000000\n\n" + b"x" * 2_000_000 + b"\0",
    b"SEND\n" + b"".join(b"h%06d:1\n" % at for at in range(200_000)) + b"\n\0",
    b"SEND\n" + b"h" * 2_000_000 + b":1\n\n\0",
    b"\n" * 2_000_000 + b"SEND\n\n\0",
], ids=["body", "known length", "headers", "line", "line ends"])  # fmt: skip
@pytest.mark.parametrize("version", VERSIONS)
def test_large_frames_in_small_pieces_take_linear_time(data, version):
    """Were each byte looked at, or copied, once per piece, this would take minutes."""
    limits = Limits(headers=10**6, line=10**7, head=10**7)
    pieces = [data[at : at + 256] for at in range(0, len(data), 256)]
    frames, text = feed(pieces, version, False, limits, CLIENT)
    assert text == "" and [frame.command for frame in frames] == ["SEND"]


@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
def test_many_small_frames_in_one_piece_take_linear_time(eol):
    """Were the end of a head looked for behind its frame, this would take minutes."""
    data = eol.join([b"SEND", b"destination:/queue/a", b"", b"x\0"]) * 20_000
    for version in VERSIONS if eol == b"\n" else (V12,):
        frames, text = feed([b"SEND\n", b"a:1\n\nx\0" + data], version, False, Limits(), CLIENT)
        assert text == "" and len(frames) == 20_001
