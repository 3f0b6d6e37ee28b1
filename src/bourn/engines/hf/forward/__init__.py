"""The model's pass over slots: the KV cache, attention of each row, and who can be served so."""
