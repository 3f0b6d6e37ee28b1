"""An OpenAI-compatible server: every client a reader of journals, every answer made by a hub."""
