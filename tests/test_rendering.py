"""A template or a BOS applied twice, against a real tokenizer made small."""

from __future__ import annotations

from pathlib import Path

import pytest

from peagle_bench import rendering
from peagle_bench.core.record import RequestRecord, digest_of_ids
from peagle_bench.core.suite import Message, Prompt
from peagle_bench.errors import TargetUnavailable
from peagle_bench.profiles import profile_named
from peagle_bench.targets.tokenizer import TargetTokenizer
from tests.conftest import record

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|> {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TargetTokenizer:
    """Words of a small vocabulary; raw text gets a BOS, and the template writes its own."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["<s>", "<|user|>", "<|assistant|>", "<|system|>", "hi", "there", "[UNK]"]
    held = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    held.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    held.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    folder = tmp_path_factory.mktemp("tokenizer")
    made = PreTrainedTokenizerFast(
        tokenizer_object=held, bos_token="<s>", chat_template=TEMPLATE,
        additional_special_tokens=["<|user|>", "<|assistant|>", "<|system|>"],
    )  # fmt: skip
    made.save_pretrained(folder)
    profile = profile_named("gpt-oss-20b")
    return TargetTokenizer(profile, str(folder))


def chat(*contents: str) -> Prompt:
    messages = tuple(Message(role="user", content=c) for c in contents)
    return Prompt(prompt_id="p", messages=messages)


def answered(ids: list[int]) -> RequestRecord:
    digest = digest_of_ids(ids)
    return record(0, prompt_token_digest=digest, prompt_tokens=len(ids))


def test_the_servers_rendering_is_compared_with_the_tokenizers_own(
    tokenizer: TargetTokenizer,
) -> None:
    prompt = chat("hi there")
    ids = tokenizer.ids(prompt)
    assert ids == [0, 1, 4, 5, 2]  # once a BOS, once a template
    assert rendering.compare(prompt, answered(ids), tokenizer).told == "equal"
    other = rendering.compare(prompt, answered([*ids, 4]), tokenizer)
    assert other.differs
    assert other.error is None
    assert "saw 6 prompt tokens" in other.told
    assert "own rendering has 5" in other.told


def test_a_second_bos_before_the_template_is_an_error(tokenizer: TargetTokenizer) -> None:
    prompt = chat("hi there")
    found = rendering.compare(prompt, answered([0, *tokenizer.ids(prompt)]), tokenizer)
    assert found.error is not None
    assert "a second BOS token (0) before p" in found.error


def test_raw_text_that_begins_with_a_bos_gets_two_and_is_an_error(
    tokenizer: TargetTokenizer,
) -> None:
    raw = Prompt(prompt_id="p", completion="<s> hi")
    ids = tokenizer.ids(raw)
    assert ids[:2] == [0, 0]
    found = rendering.compare(raw, answered(ids), tokenizer)
    assert found.error is not None
    assert "two BOS tokens" in found.error
    fine = Prompt(prompt_id="p", completion="hi there")
    assert rendering.compare(fine, answered([0, 4, 5]), tokenizer).told == "equal"


def test_a_message_that_was_rendered_already_is_an_error(tokenizer: TargetTokenizer) -> None:
    prompt = chat("<s> <|user|> hi <|assistant|>")
    found = rendering.compare(prompt, answered([1]), tokenizer)
    assert found.error is not None
    assert "begins with the control token <s>" in found.error
    assert "endpoint: completions" in found.error


def test_token_ids_are_expected_as_they_were_sent(tokenizer: TargetTokenizer) -> None:
    prompt = Prompt(prompt_id="p", completion=(4, 5))
    assert rendering.compare(prompt, answered([4, 5]), tokenizer).told == "equal"
    assert rendering.compare(prompt, answered([0, 4, 5]), tokenizer).error is not None


def test_without_a_tokenizer_or_ids_nothing_is_claimed(tokenizer: TargetTokenizer) -> None:
    none = TargetTokenizer(profile_named("calibration"))
    found = rendering.compare(chat("hi"), answered([1]), none)
    assert found.told == "not compared: the calibration server has no tokenizer"
    silent = rendering.compare(chat("hi"), record(0), tokenizer)
    assert "does not tell the prompt's token ids" in silent.told
    assert not (found.error or silent.error or found.differs or silent.differs)


def test_lengths_and_the_vocabulary_leave_control_tokens_apart(tokenizer: TargetTokenizer) -> None:
    talk = Prompt(
        prompt_id="p", messages=(Message(role="user", content="hi"),), follow_ups=("there",)
    )
    # <s> user hi assistant(empty) user there assistant: replies are left out
    assert tokenizer.length(talk) == 7
    assert list(tokenizer.vocabulary()) == [4, 5, 6]


def test_a_tokenizer_that_is_not_there_says_where_it_was_looked_for(tmp_path: Path) -> None:
    missing = TargetTokenizer(profile_named("gpt-oss-20b"), str(tmp_path))
    with pytest.raises(TargetUnavailable, match="no tokenizer from"):
        missing.ids(chat("hi"))
