"""Renders conversations with a checkpoint's own tokenizer and template: FOLDER < cases > results.

It is run by an engine's Python; what the results must be is judged by the test that runs it.
"""

from __future__ import annotations

import json
import sys

from transformers import AutoTokenizer  # type: ignore[import-not-found]

tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
results = []
for case in json.load(sys.stdin):
    text = tokenizer.apply_chat_template(
        case["messages"],
        tools=case["tools"] or None,
        add_generation_prompt=case["add_generation_prompt"],
        tokenize=False,
    )
    ids = tokenizer.encode(text, add_special_tokens=False)
    results.append({"text": text, "ids": ids, "again": tokenizer.decode(ids)})
json.dump(results, sys.stdout)
