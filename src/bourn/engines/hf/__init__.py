"""Hugging Face checkpoints on transformers: many requests in one batch, each exact by itself.

decide (`scheduler`) ▸ do (`forward`, `sampling`) ▸ record (`sequence`), in the thread of a
`batcher`; what slots cannot serve goes through `generate` (`generating`). Tensors stay in here.
"""
