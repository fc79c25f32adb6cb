"""Prints how far the logits of two targets lie apart over some text: FOLDER FOLDER < text.

It is run by an engine's Python; what distance is right is judged by the test that runs it.
"""

from __future__ import annotations

import sys

import torch  # type: ignore[import-not-found]
from transformers import AutoTokenizer, Gemma4ForCausalLM  # type: ignore[import-not-found]

torch.set_num_threads(1)
ids = AutoTokenizer.from_pretrained(sys.argv[1])(
    sys.stdin.read(), add_special_tokens=False, return_tensors="pt"
).input_ids
logits = []
for folder in sys.argv[1:]:
    network = Gemma4ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        logits.append(network(input_ids=ids).logits)
difference = (logits[0] - logits[1]).abs().max().item()
agreed = (logits[0].argmax(-1) == logits[1].argmax(-1)).all().item()
print(f"{difference} {agreed} {tuple(ids.shape)}")  # noqa: T201  # the answer
