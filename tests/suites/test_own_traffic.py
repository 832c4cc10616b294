"""Files of one's own: every shape, what is skipped, and nothing of them in a run folder."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from peagle_bench.core.suite import Prompt
from peagle_bench.errors import ConfigError
from peagle_bench.suites.catalog import find_suite, load
from peagle_bench.suites.loaded import Loaded, LoadOptions
from peagle_bench.suites.rows import PLACEHOLDER

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
USER = {"role": "user", "content": "hi"}


def lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return path


def loaded(path: Path) -> Loaded:
    return load(find_suite(str(path)), LoadOptions())


def one(path: Path, row: Any) -> Prompt:
    (prompt,) = loaded(lines(path, row)).prompts
    return prompt


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "traffic.jsonl"


@pytest.mark.parametrize(
    ("row", "sent"),
    [
        (CHAT, ["hi"]),
        ({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}, ["hi"]),
        ({"prompt": "hi"}, ["hi"]),
        ({"messages": [USER, {"role": "assistant", "content": "old reply"}]}, ["hi"]),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}, ["hi"]),
        ({"messages": [{"role": "developer", "content": "be brief"}, USER]}, ["be brief", "hi"]),
        (
            {"messages": [USER, {"role": "assistant", "content": "yes?"}, USER]},
            ["hi", "yes?", "hi"],
        ),
    ],
    ids=["chat", "batch line", "plain prompt", "answered", "text parts", "developer", "history"],
)
def test_a_row_becomes_one_chat_request_as_it_was(file: Path, row: Any, sent: list[str]) -> None:
    prompt = one(file, row)
    assert [m.content for m in prompt.messages] == sent
    assert prompt.follow_ups == ()


def test_a_completions_body_is_sent_raw_and_as_it_was(file: Path) -> None:
    body = {"model": "m", "prompt": "def f():", "max_tokens": 9}
    prompt = one(file, {"url": "/v1/completions", "body": body})
    assert (prompt.completion, prompt.max_tokens, prompt.messages) == ("def f():", 9, ())
    assert one(file, {"model": "m", "prompt": [5, 6, 7]}).completion == (5, 6, 7)


def test_several_prompts_in_one_completions_body_are_several_requests(file: Path) -> None:
    found = loaded(lines(file, {"id": "x", "model": "m", "prompt": ["a", "b"]})).prompts
    assert [(p.prompt_id, p.completion) for p in found] == [("x.1", "a"), ("x.2", "b")]


def test_a_sharegpt_conversation_sends_the_humans_turns_one_after_another(file: Path) -> None:
    turns = [
        {"from": "system", "value": "be brief"},
        {"from": "human", "value": "one"},
        {"from": "gpt", "value": "their reply"},
        {"from": "human", "value": "two"},
        {"from": "gpt", "value": "their reply"},
    ]
    path = file.with_name("sharegpt.json")
    path.write_text(json.dumps([{"id": "c1", "conversations": turns}]))
    (prompt,) = loaded(path).prompts
    assert prompt.prompt_id == "c1"
    assert [m.content for m in prompt.messages] == ["be brief", "one"]
    assert prompt.follow_ups == ("two",)
    assert "their reply" not in prompt.model_dump_json()


@pytest.mark.parametrize("key", ["turns", "messages"])
def test_speed_benchs_two_shapes_are_turns_never_one_request(file: Path, key: str) -> None:
    turns = ["first", "second"]
    held: Any = turns if key == "turns" else [{"role": "user", "content": t} for t in turns]
    row = {"question_id": "q", "category": "coding", "sub_category": "", key: held}
    prompt = one(file, row)
    assert prompt.num_turns == 2
    assert [m.content for m in prompt.messages] == ["first"]
    assert (prompt.prompt_id, prompt.category) == ("q", "coding")


def test_tools_and_their_calls_go_along_and_the_reply_stays_text(file: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    messages = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "42", "tool_call_id": "1"},
    ]
    prompt = one(file, {"messages": messages, "tools": [tool]})
    sent = prompt.conversation(())
    assert sent[1] == {"role": "assistant", "content": None, "tool_calls": [call]}
    assert sent[2]["tool_call_id"] == "1"
    assert prompt.tools == (tool,)


IMAGE = {"type": "image_url", "image_url": {"url": "data:…"}}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("{not json", "no JSON"),
        ([1, 2], "no JSON object"),
        ({"input": "embed me", "model": "m"}, "neither messages nor a prompt"),
        ({"url": "/v1/embeddings", "body": {"input": "x"}}, "no generation request"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "content that is not text"),
        ({"messages": [{"role": "system", "content": "x"}]}, "no user message"),
        ({"messages": [{"role": "alien", "content": "x"}]}, "unknown role"),
        ({"messages": "hi"}, "messages that are no list"),
        ({"messages": [{"role": "user"}]}, "a message without content"),
        ({"messages": [{"role": "user", "content": ""}]}, "an empty prompt"),
        ({"messages": [USER], "tools": ["x"]}, "tools that are no list of objects"),
        ('{"prompt": "lone \\ud800 surrogate"}', "text that is no valid Unicode"),
        ("[" * 100_000, "no JSON"),
        ('{"messages": [{"role": "user", "content": "x"}], "tools": [{"n": NaN}]}', "a number"),
        ({"model": "m", "prompt": ""}, "an empty prompt"),
        ({"model": "m", "prompt": 5}, "neither text nor token ids"),
        ({"model": "m", "prompt": [2**40]}, "neither text nor token ids"),
        ({"prompt": "  "}, "an empty prompt"),
        ({"model": "m", "prompt": []}, "an empty prompt"),
        ({"model": "m", "prompt": [True]}, "neither text nor token ids"),
        ({"turns": ["a", ""]}, "an empty turn"),
        ({"turns": ["a", f"{PLACEHOLDER} …"]}, "a placeholder of SPEED-Bench"),
        ({"prompt": f"{PLACEHOLDER}\n\n{{article}}"}, "a placeholder of SPEED-Bench"),
        ({"conversations": [{"from": "alien", "value": "x"}]}, "neither user nor assistant"),
        ({"conversations": [{"from": "gpt", "value": "x"}]}, "no user message"),
        ({"captureData": {"endpointOutput": {}}}, "no captured input"),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_a_row_that_is_no_request_is_skipped_counted_and_said(
    file: Path, row: Any, why: str
) -> None:
    found = loaded(lines(file, CHAT, row))
    assert len(found.prompts) == 1
    (stamp,) = found.stamps
    assert stamp.code == "rows-skipped"
    assert stamp.text.startswith("1 of 2 rows")
    assert why in stamp.text
    assert "traffic.jsonl:2" in stamp.text


def test_fields_that_shape_the_prompt_are_sent_and_those_that_shape_the_reply_are_named(
    file: Path,
) -> None:
    options = {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"}
    rows = [CHAT | options, CHAT | {"response_format": {"type": "json_object"}, "n": 1}]
    found = loaded(lines(file, *rows))
    assert found.prompts[0].template_options == options
    (stamp,) = found.stamps
    assert stamp.text.endswith("than in production: response_format (1)")


def test_a_null_field_is_an_absent_one(file: Path) -> None:
    row = {"prompt": "hi", "turns": None, "messages": None, "conversations": None, "model": None}
    assert [m.content for m in one(file, row).messages] == ["hi"]


def test_ids_and_categories_are_one_line_that_a_table_can_hold(file: Path) -> None:
    row = {"id": "a\nb\x1b[31m", "category": "new\nline\x07" + "x" * 300, "prompt": "hi"}
    prompt = one(file, row)
    assert prompt.prompt_id == "a b?[31m"
    assert prompt.category.startswith("new line?x")
    assert len(prompt.category) == 60


def test_a_prompt_without_an_id_has_its_row_number_and_in_a_folder_its_path(
    file: Path, tmp_path: Path
) -> None:
    assert one(file, CHAT).prompt_id == "row-1"
    for hour in ("08", "09"):
        lines(tmp_path / "two" / hour / "t.jsonl", CHAT, "junk")
    found = loaded(tmp_path / "two")
    assert [p.prompt_id for p in found.prompts] == ["08/t.jsonl:1", "09/t.jsonl:1"]
    assert "(08/t.jsonl:2, 09/t.jsonl:2)" in found.stamps[0].text


def test_in_a_folder_a_damaged_file_costs_only_itself_and_hidden_ones_are_left(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "folder"
    lines(folder / "good.jsonl", CHAT)
    lines(folder / ".hidden.jsonl", CHAT)
    (folder / "bad.jsonl.gz").write_bytes(b"not gzip")
    found = loaded(folder)
    assert len(found.prompts) == 1
    assert "1 a file that cannot be read (bad.jsonl.gz)" in found.stamps[0].text


def test_a_file_without_any_request_is_an_error_that_says_why(file: Path) -> None:
    lines(file, "{not json", {"input": "x"})
    with pytest.raises(ConfigError, match=r"none of its 2 rows is a request: 1 no JSON.*1 neither"):
        loaded(file)
    file.write_text("\n\n")
    with pytest.raises(ConfigError, match="it holds no row"):
        loaded(file)


def test_a_line_that_is_not_utf8_is_skipped_and_a_byte_order_mark_is_not(file: Path) -> None:
    row = json.dumps(CHAT).encode()
    file.write_bytes(b"\xef\xbb\xbf" + row + b"\n" + b'{"prompt": "\xff"}\n')
    found = loaded(file)
    assert len(found.prompts) == 1
    assert "no UTF-8" in found.stamps[0].text


def test_a_list_under_the_name_of_json_lines_is_read_as_the_list_it_is(file: Path) -> None:
    file.write_text(json.dumps([CHAT, CHAT], indent=1))
    assert len(loaded(file).prompts) == 2


def test_a_parquet_column_that_python_cannot_hold_does_not_matter(tmp_path: Path) -> None:
    table = pa.table({"prompt": ["hi"], "when": pa.array([10**15], pa.timestamp("ms"))})
    pq.write_table(table, tmp_path / "a.parquet")
    assert len(loaded(tmp_path / "a.parquet").prompts) == 1


def test_gzip_parquet_and_json_hold_the_same_rows_as_json_lines(file: Path) -> None:
    rows: list[dict[str, Any]] = [{"id": f"r{i}", "prompt": f"p{i}"} for i in range(3)]
    text = "".join(json.dumps(r) + "\n" for r in rows)
    lines(file, *rows)
    zipped, table = file.with_name("a.jsonl.gz"), file.with_name("b.parquet")
    whole, wrapped = file.with_name("c.json"), file.with_name("d.json")
    misnamed = file.with_name("e.json")
    zipped.write_bytes(gzip.compress(text.encode()))
    pq.write_table(pa.Table.from_pylist(rows), table)
    whole.write_text(json.dumps(rows))
    wrapped.write_text(json.dumps({"data": rows}))
    misnamed.write_text(text)
    expected = loaded(file).prompts
    for path in (zipped, table, whole, wrapped, misnamed):
        assert loaded(path).prompts == expected, path


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("x.jsonl.gz", b"not gzip", "cannot read"),
        ("x.parquet", b"not parquet", "cannot read"),
        ("x.json", b"{broken", "cannot read"),
        ("x.csv", b"a,b", "none of the endings"),
        ("x.jsonl", '{"prompt": "x"}'.encode("utf-16"), "it is UTF-16"),
    ],
)
def test_a_damaged_file_is_one_clear_error(
    tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=why):
        loaded(tmp_path / name)


def test_repeated_ids_stay_apart(file: Path) -> None:
    rows = [{"id": "x", "prompt": "a"}, {"id": "x", "prompt": "b"}, {"id": "x#2", "prompt": "c"}]
    ids = [p.prompt_id for p in loaded(lines(file, *rows)).prompts]
    assert ids == ["x", "x#3", "x#2"]


def capture(body: Any, event: str, when: str, encoding: str = "BASE64") -> dict[str, Any]:
    text = body if isinstance(body, str) else json.dumps(body)
    data = base64.b64encode(text.encode()).decode() if encoding == "BASE64" else text
    given = {"observedContentType": "application/json", "mode": "INPUT", "data": data}
    return {
        "captureData": {"endpointInput": {**given, "encoding": encoding}},
        "eventMetadata": {"eventId": event, "inferenceTime": when},
        "eventVersion": "0",
    }


@pytest.fixture
def capture_folder(tmp_path: Path) -> Path:
    """Two hours of an endpoint, the later hour's file sorting first within the day's folders."""
    day = tmp_path / "capture/endpoint/AllTraffic/2026/11/30"
    lines(
        day / "09/bb.jsonl",
        capture(CHAT, "e3", "2026-11-30T09:10:00Z"),
        capture({"prompt": "def f():", "max_tokens": 7}, "e4", "2026-11-30T09:20:00Z", "JSON"),
        capture("1.0,2.0", "csv", "2026-11-30T09:21:00Z", "CSV"),
        capture("%%%", "bad", "2026-11-30T09:22:00Z"),
    )
    lines(
        day / "08/aa.jsonl",
        capture({"inputs": "raw text", "parameters": {"max_new_tokens": 5}}, "e2",
                "2026-11-30T08:50:00Z"),
        capture({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"},
                                   {"from": "human", "value": "c"}]}, "e1",
                "2026-11-30T08:10:00Z"),
    )  # fmt: skip
    return tmp_path / "capture"


def test_a_data_capture_folder_gives_its_requests_in_the_order_of_the_traffic(
    capture_folder: Path,
) -> None:
    found = loaded(capture_folder)
    assert [p.prompt_id for p in found.prompts] == ["e1", "e2", "e3", "e4"]
    talk, raw, chat, completion = found.prompts
    assert talk.follow_ups == ("c",)
    assert (raw.completion, raw.max_tokens) == ("raw text", 5)
    assert chat.messages[0].content == "hi"
    assert (completion.completion, completion.max_tokens) == ("def f():", 7)
    assert found.facts["rows"] == 6
    assert found.facts["skipped"] == {"no LLM request": 1, "a captured body that is no JSON": 1}


def test_check_says_what_a_folder_would_send(
    invoke: Callable[..., Any], capture_folder: Path
) -> None:
    done = invoke("suites", "check", str(capture_folder), "-p", "calibration")
    assert done.returncode == 0, done.stderr
    assert "4 prompts, 1 of them conversations: 5 requests" in done.stdout
    assert "2 of 6 rows are no request" in done.stdout


def test_check_of_a_file_without_requests_exits_with_2(
    invoke: Callable[..., Any], file: Path
) -> None:
    lines(file, {"input": "x"})
    done = invoke("suites", "check", str(file))
    assert done.returncode == 2
    assert "none of its 1 rows is a request" in done.stderr


def test_a_yaml_of_ones_own_maps_columns_and_may_ask_for_raw_text(tmp_path: Path) -> None:
    lines(tmp_path / "rows.jsonl", {"q": "what?", "kind": "a", "n": 1})
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nversion: '1'\ntitle: mine\nloader: jsonl\nsource: me\nlicense: mine\n"
        "path: rows.jsonl\ncolumns: {prompt: q, category: kind, id: n}\n"
        "endpoint: completions\ntemplate: 'Q: {prompt}'\n"
    )
    (prompt,) = loaded(tmp_path / "mine.yaml").prompts
    assert (prompt.completion, prompt.category, prompt.prompt_id) == ("Q: what?", "a", "1")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "needs `path:`"),
        ("loader: jsonl", "needs `path:`"),
        ("path: rows.jsonl\nhub: {dataset: a/b}\n", "`path:` has no meaning for loader hub"),
        ("path: rows.jsonl\ntemplate: no placeholder", "the template must hold {prompt}"),
        ("path: rows.jsonl\nsample: 2", "`rows:` and `sample:` are for suites of the hub"),
        ("hub: {dataset: a/b}", "loader hub needs `columns:`"),
        ("hub: {dataset: ../x}\ncolumns: {prompt: p}", "hub.dataset"),
        ("path: rows.jsonl\nvariants: [{name: b}, {name: c}]", "holds several suites"),
        ("path: rows.jsonl\nloader: humaneval", "needs `hub:`"),
    ],
)
def test_a_setting_of_ones_own_suite_that_would_have_no_effect_is_an_error(
    tmp_path: Path, text: str, why: str
) -> None:
    lines(tmp_path / "rows.jsonl", {"prompt": "hi"})
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(why)):
        loaded(tmp_path / "mine.yaml")


def test_a_yaml_of_ones_own_needs_nothing_but_a_path(tmp_path: Path) -> None:
    lines(tmp_path / "rows.jsonl", {"prompt": "hi"}, CHAT)
    (tmp_path / "mine.yaml").write_text("path: rows.jsonl\n")
    assert find_suite(str(tmp_path / "mine.yaml")).name == "mine"
    assert len(loaded(tmp_path / "mine.yaml").prompts) == 2


def test_wording_is_put_around_plain_prompts_alone_and_other_rows_are_said(tmp_path: Path) -> None:
    lines(tmp_path / "rows.jsonl", {"prompt": "hi"}, CHAT)
    (tmp_path / "mine.yaml").write_text("path: rows.jsonl\ntemplate: 'Q: {prompt}'\n")
    found = loaded(tmp_path / "mine.yaml")
    assert [p.messages[0].content for p in found.prompts] == ["Q: hi"]
    assert "template cannot be put around" in found.stamps[0].text
    (tmp_path / "mine.yaml").write_text("path: rows.jsonl\nendpoint: completions\n")
    found = loaded(tmp_path / "mine.yaml")
    assert [p.completion for p in found.prompts] == ["hi"]
    assert "a chat request, and the suite sends raw text" in found.stamps[0].text
