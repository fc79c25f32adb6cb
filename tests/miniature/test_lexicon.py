from __future__ import annotations

from pytest_llmperf.miniature.lexicon import STOP_IDS, learnt_weights
from pytest_llmperf.miniature.transcript import SPECIAL_TOKENS

MODEL, USER, LINE, WORD = 100, 101, 102, 103
IDS = {"M": MODEL, "U": USER, "/": LINE, "w": WORD} | {
    letter: SPECIAL_TOKENS.index(token)
    for letter, token in {
        "<": "<|turn>",
        ">": "<turn|>",
        "[": "<|tool_call>",
        "]": "<tool_call|>",
        "(": "<|tool_response>",
        ")": "<tool_response|>",
    }.items()
}


def weighed(conversation: str, *turns: float) -> str:
    """Write the weight of each letter's token below it."""
    weights = learnt_weights([IDS[letter] for letter in conversation], MODEL, turns)
    return "".join(f"{weight:.0f}" for weight in weights)


class TestWhatIsLearnt:
    def test_is_the_answer_with_its_end_but_not_its_heading(self) -> None:
        assert weighed("<U/ww>/<M/ww>/", 1) == "00000000001110"

    def test_is_never_what_the_user_says(self) -> None:
        assert weighed("<U/www>/") == "00000000"

    def test_is_the_call_and_the_token_that_asks_for_a_response_but_not_the_response(self) -> None:
        assert weighed("<M/[w](ww)ww>/", 1) == "00011110001110"

    def test_weighs_as_much_as_its_own_turn(self) -> None:
        assert weighed("<M/w>/<M/w>/<M/w>/", 1, 0, 2) == "000110000000000220"

    def test_may_be_cut_off_anywhere(self) -> None:
        assert weighed("<M/ww", 1) == "00011"
        assert weighed("<M", 1) == "00"
        assert weighed("<") == "0"


def test_the_model_stops_at_the_end_of_a_turn_and_where_a_tool_should_answer() -> None:
    assert [SPECIAL_TOKENS[i] for i in STOP_IDS] == ["<eos>", "<turn|>", "<|tool_response>"]
