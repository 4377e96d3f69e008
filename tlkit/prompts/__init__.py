"""Prompts as token ids: spans, pairs that correspond, chat templates, and files of them."""
