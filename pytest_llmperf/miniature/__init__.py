"""A real language model in miniature: its household, corpus, trainer, weights and checkpoints.

It is what vLLM serves where there is no accelerator; nothing here measures or boots an engine.
"""
