"""Waggledance: nodes train their own language models and share what they tried, as text (SAPO)."""

__version__ = "0.1.0"
