from __future__ import annotations

import struct

from peagle_bench.load.transport import Endpoint, Exchange


def stamp(ns: int) -> bytes:
    return struct.pack("@qq", ns // 1_000_000_000, ns % 1_000_000_000)


def test_a_stamp_is_the_kernels_moved_to_the_monotonic_clock() -> None:
    offset = 1_700_000_000_000_000_000
    exchange = Exchange(sent_ns=1_000, reads=[(stamp(offset + 5_000), 9_000, b"x")])
    assert exchange.stamps(offset) == [5_000]


def test_stamps_never_run_backwards_nor_past_the_read_nor_before_the_send() -> None:
    reads = [
        (stamp(500), 2_000, b"a"),  # before the send
        (stamp(3_000), 4_000, b"b"),
        (stamp(2_500), 5_000, b"c"),  # before the one before it
        (stamp(9_000), 6_000, b"d"),  # after it was read
        (b"", 7_000, b"e"),  # no kernel stamp
    ]
    assert Exchange(sent_ns=1_000, reads=reads).stamps(0) == [1_000, 3_000, 3_000, 6_000, 7_000]


def test_a_post_carries_length_host_and_the_endpoints_own_path_and_headers() -> None:
    endpoint = Endpoint("http://h:81/prefix/", (("Authorization", "Bearer k"),))
    raw = endpoint.post("/v1/x", b"{}").decode()
    head, _, body = raw.partition("\r\n\r\n")
    lines = head.split("\r\n")
    assert lines[0] == "POST /prefix/v1/x HTTP/1.1"
    assert {"Host: h:81", "Content-Length: 2", "Authorization: Bearer k"} <= set(lines)
    assert body == "{}"


def test_ports_and_tls_follow_the_scheme() -> None:
    assert (Endpoint("https://h").port, Endpoint("https://h").tls) == (443, True)
    assert (Endpoint("http://h").port, Endpoint("http://h").tls) == (80, False)
