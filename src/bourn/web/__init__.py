"""The web page: answers that are shown as they come, that stop, and that are there afterwards.

Only `page.py` and `mount.py` know Gradio; the rest is plain and is tested without it.
"""
