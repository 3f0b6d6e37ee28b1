"""Tokenizers and chat templates: from messages to ids, and from ids to text."""
